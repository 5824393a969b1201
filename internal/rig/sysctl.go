package rig

import (
	"fmt"
	"os"
)

// SetSysctl writes a setting below /proc/sys inside the namespace, such as
// net/ipv4/icmp_ratelimit.
func (ns *Namespace) SetSysctl(name, value string) error {
	// /proc/sys/net follows the thread that opens it.
	err := Run(ns, func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
	if err != nil {
		return fmt.Errorf("set %s in %s: %w", name, ns.Name, err)
	}
	return nil
}
