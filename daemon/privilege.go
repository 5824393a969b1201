package daemon

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/internal/caps"
)

// giveUpPrivilege leaves the running daemon what the network gate needs: nothing
// that comes later takes more. What listens below port 1024, owns the control
// socket and starts children as another user is there by then.
func giveUpPrivilege(log *slog.Logger) error {
	keep := caps.NetworkGate
	have, err := caps.Effective()
	if err != nil {
		return err
	}
	if have&keep != keep {
		keep |= caps.SysAdmin // stands for what is missing, see caps.Missing
	}
	err = caps.Keep(keep)
	if errors.Is(err, errors.ErrUnsupported) {
		log.Warn("this binary is linked with C: the daemon keeps all its capabilities (build it with CGO_ENABLED=0)")
		return nil
	}
	if err != nil {
		return fmt.Errorf("give up what the daemon needs no more: %w", err)
	}
	return nil
}
