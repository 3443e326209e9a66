// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// wanted is a list of conditions. A selected connection meets all of them.
type wanted []func(*sockdiag.Connection) bool

func (w wanted) match(c *sockdiag.Connection) bool {
	for _, f := range w {
		if !f(c) {
			return false
		}
	}
	return true
}

// qualifier returns a word for messages. The word depends on whether there are
// conditions.
func (w wanted) qualifier() string {
	if len(w) > 0 {
		return "matching "
	}
	return ""
}

// selection parses the words that select connections, and the name or pid of a
// process, if given.
func selection(cmd *cobra.Command, args []string, process string) (wanted, error) {
	var w wanted
	for _, a := range args {
		f := byToken(a)
		if f == nil {
			f = byAddress(a)
		}
		if f == nil {
			return nil, exit.Usagef("unexpected argument %q; expected a token, an address or a network; see %s --help", a, cmd.CommandPath())
		}
		w = append(w, f)
	}
	if process != "" {
		w = append(w, func(c *sockdiag.Connection) bool {
			return slices.ContainsFunc(c.Processes, func(p sockdiag.Process) bool {
				return p.Comm == process || strconv.Itoa(p.PID) == process
			})
		})
	}
	return w, nil
}

func byToken(word string) func(*sockdiag.Connection) bool {
	n, err := strconv.ParseUint(word, 16, 32)
	if err != nil || len(word) != 8 {
		return nil
	}
	return func(c *sockdiag.Connection) bool {
		return c.MPTCP != nil && c.MPTCP.Token == sockdiag.Known(n) || c.Proc != nil && c.Proc.Token == sockdiag.Known(n)
	}
}

// byAddress selects connections for which the word is the address of either end, or
// of either end of a subflow.
func byAddress(word string) func(*sockdiag.Connection) bool {
	net, err := netip.ParsePrefix(word)
	if err != nil {
		a, err := netip.ParseAddr(word)
		if err != nil {
			return nil
		}
		net = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	}
	net = net.Masked()
	at := func(s sockdiag.Socket) bool {
		return net.Contains(s.Local.Addr().Unmap()) || net.Contains(s.Remote.Addr().Unmap())
	}
	return func(c *sockdiag.Connection) bool { return at(c.Socket) || slices.ContainsFunc(c.Subflows, at) }
}
