package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// verifierLog is where what the kernel's verifier said is kept, in state.dir.
const verifierLog = "verifier.log"

// keepVerifierLog writes all that the verifier said of a program that it
// refused, thousands of lines, into dir, and names the file in the error. Other
// errors it leaves as they are.
func keepVerifierLog(dir string, err error) error {
	var v *ebpf.VerifierError
	if !errors.As(err, &v) {
		return err
	}
	path := filepath.Join(dir, verifierLog)
	if bad := os.WriteFile(path, []byte(strings.Join(v.Log, "\n")+"\n"), 0o640); bad != nil {
		return fmt.Errorf("%w (what the verifier said could not be kept: %w)", err, bad)
	}
	return fmt.Errorf("%w (all that the verifier said is in %s: send it with a report)", err, path)
}
