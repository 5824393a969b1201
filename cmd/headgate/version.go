package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this headgate",
		Example: "  headgate version -o json",
		Args:    cobra.NoArgs,
		RunE: work(func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if done, err := e.asJSON(v); done {
				return err
			}
			_, err := fmt.Fprintf(e.out, "headgate %s (%s, %s)\n", v.Version, v.Go, v.System)
			return err
		}),
	}
}
