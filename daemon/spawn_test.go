package daemon

import (
	"os"
	"os/user"
	"testing"
)

// The HTTP gate parses what strangers send: it must not be able to ask the
// daemon for what only the group of the control socket may.
func TestChildIsOutsideTheControlGroup(t *testing.T) {
	if got := outside(998, 998); got != noGroup {
		t.Errorf("a user in the group runs in group %d", got)
	}
	if got := outside(997, 998); got != 997 {
		t.Errorf("a user of another group runs in group %d", got)
	}
}

func TestAccountIsNeverRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change users")
	}
	if _, _, err := lookupAccount("root"); err == nil {
		t.Error("root is taken for http.user")
	}
	acc, warning, err := lookupAccount("nosuch-user")
	if err != nil || warning == "" || acc.cred == nil || acc.cred.Uid == 0 || acc.cred.Gid == 0 {
		t.Errorf("for a user who does not exist: %+v, %q, %v", acc, warning, err)
	}
	if _, err := user.Lookup("nobody"); err == nil && acc.name != "nobody" {
		t.Errorf("for a user who does not exist it runs as %s", acc.name)
	}
}
