package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
)

// checked is what check found.
type checked struct {
	File     string        `json:"file"`
	OK       bool          `json:"ok"`
	Errors   []string      `json:"errors,omitempty"`
	Rules    []checkedRule `json:"rules"`
	Memory   *config.Room  `json:"memory,omitempty"` // of the HTTP gate's bucket keys
	Warnings []string      `json:"warnings,omitempty"`
}

type checkedRule struct {
	Name      string `json:"name"`
	Gate      string `json:"gate"`
	Mode      string `json:"mode"`
	Text      string `json:"text"`
	WorstCase string `json:"worst_case"`
}

func newCheck(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a config without using it",
		Long: `Reads a config and prints every error in it, or its rules with the worst case
of each: the most that it lets through; and how much memory the keys of the HTTP
gate's rules may take. It needs no daemon and no privilege.

Exit code 2 says that the config has errors.`,
		Example: `  headgate check
  headgate check new.yaml -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: work(func(_ *cobra.Command, args []string) error {
			path := e.configPath()
			if len(args) == 1 {
				path = args[0]
			}
			return check(e, path)
		}),
	}
}

func check(e *env, path string) error {
	cfg, err := config.Load(path)
	c := checked{File: path, OK: err == nil, Rules: []checkedRule{}}
	if err != nil {
		c.Errors = strings.Split(err.Error(), "\n")
	} else {
		c.Warnings, c.Memory = config.Warnings(cfg), config.Memory(cfg)
		for _, r := range cfg.Rules {
			c.Rules = append(c.Rules, checkedRule{r.Name, string(r.Gate), string(r.Mode), r.Text, config.WorstCase(r)})
		}
	}
	if done, printed := e.asJSON(c); done {
		if err != nil {
			return badInput{errors.New(path + " has errors")}
		}
		return printed
	}
	if err != nil {
		return badInput{err}
	}
	for _, r := range c.Rules {
		fmt.Fprintf(e.out, "%s (%s, %s)\n  %s\n  worst case: %s\n", r.Name, r.Gate, r.Mode, r.Text, r.WorstCase)
	}
	fmt.Fprintln(e.out, "else: pass")
	if c.Memory != nil {
		fmt.Fprintln(e.out, c.Memory)
	}
	fmt.Fprintf(e.out, "%s is good: %d rules\n", path, len(c.Rules))
	e.warn(c.Warnings)
	return nil
}
