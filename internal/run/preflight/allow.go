// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// CheckAllow returns an error if a run with allowed destinations or a proxy has another way
// to the network than one gateway, which applies them.
func CheckAllow(run config.Run, s *stack.Stack) error {
	flag, _, _ := strings.Cut(run.Confined(), " ")
	if flag == "" {
		return nil
	}
	only := "with " + flag + ", the program reaches the network only through the user-mode gateway"
	ifs := interfaces(run, s)
	switch {
	case s.ABI == stack.ABIHost:
		return fmt.Errorf("%s: the stack is the host's own kernel, which lklrun does not restrict; choose another --stack", run.Confined())
	case len(run.Ifaces) > 0:
		return fmt.Errorf("--iface %s: %s; remove --iface", run.Ifaces[0], only)
	case len(run.HostNets) > 0:
		return fmt.Errorf("--host-net %s: %s; remove --host-net", run.HostNets[0], only)
	case len(run.Publish) > 0:
		return fmt.Errorf("--publish %s: %s, and a peer of a published port could be any destination; remove --publish", run.Publish[0], only)
	case len(run.DNS) > 0:
		return fmt.Errorf("--dns %s: with %s, the gateway resolves names; remove --dns", run.DNS[0], flag)
	}
	for n := range ifs {
		switch i := &ifs[n]; {
		case i.Type != config.DefaultType:
			return fmt.Errorf("--if %q: %s; use --if %s", i.String(), only, config.DefaultType)
		case len(i.DNS) > 0:
			return fmt.Errorf("--if %q: dns: with %s, the gateway resolves names; remove it", i.String(), flag)
		case n > 0:
			return fmt.Errorf("--if %q: with %s, a run has only one interface; remove the others", i.String(), flag)
		}
	}
	for _, a := range run.Allows {
		if !loopback(a, run.AddHosts) {
			continue
		}
		host := "192.168.127.254"
		if len(ifs) > 0 && len(ifs[0].IP) > 0 {
			host = "the address that --dry-run shows for it"
		} else if a.Port != 0 {
			host = fmt.Sprintf("%s:%d", host, a.Port)
		}
		return fmt.Errorf("--allow %s: this is the program's own loopback interface, which needs no rule; for the host's 127.0.0.1, allow %s and connect to it", a, host)
	}
	return nil
}

// loopback reports whether a rule only names the loopback interface of the program.
func loopback(a config.Allow, names []config.HostName) bool {
	if a.Name == "" {
		return a.Prefix.Addr().Unmap().IsLoopback() && a.Prefix.Bits() >= 8
	}
	if slices.ContainsFunc(names, func(h config.HostName) bool { return a.Matches(strings.ToLower(h.Name)) && !h.Addr.IsLoopback() }) {
		return false
	}
	return a.Name == "localhost" || strings.HasSuffix(a.Name, ".localhost")
}
