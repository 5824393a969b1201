package attachments

import (
	"slices"

	"github.com/headgate/headgate/config"
)

// Choice is an interface that network.interfaces stands for now, or an item of
// it that stands for none.
type Choice struct {
	Interface string
	There     bool
	Fault     string // why it is not to be attached
	Note      string // what its owner should know all the same
}

// Choose says which interfaces network.interfaces of cfg stands for now, and in
// left why others that it names are left out. It changes nothing and needs no
// privilege.
func Choose(cfg *config.Config) (choices []Choice, left []string, err error) {
	s, err := survey(cfg)
	if err != nil {
		return nil, nil, err
	}
	picks, left := choose(cfg.Network.Interfaces, s, nil)
	for _, k := range picks {
		choices = append(choices, Choice{k.name, k.index != 0, k.fault, k.note})
	}
	return choices, left, nil
}

// Survey looks at the interfaces of this network namespace.
func Survey() (Surroundings, error) {
	nics, err := listNICs()
	return Surroundings{nics: nics}, err
}

// survey looks at all that decides what is to be attached.
func survey(cfg *config.Config) (s Surroundings, err error) {
	if s.nics, err = listNICs(); err != nil {
		return s, err
	}
	if slices.Contains(cfg.Network.Interfaces, config.AutoInterfaces) {
		s.routes, err = listDefaultRoutes()
	}
	return s, err
}
