// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"math"
	"net"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

func linkSetCommand(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME|group N [up|down] [mtu N] [address MAC] [group N]",
		Short: "change an interface or a group of interfaces",
		Long: `set changes the given properties of an interface, or of all interfaces of a
group at once. Some drivers require an interface to be down for a new address.`,
		Example: `  lklctl link set eth1 down
  lklctl link set eth0 mtu 1400 group 7
  lklctl link set group 7 mtu 1400`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := parseLinkSet(cmd, args)
			return err
		},
	}
	cmd.RunE = c.Change(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
		target, change, err := parseLinkSet(cmd, args)
		if err != nil {
			return err
		}
		n, err := stacknet.SetLink(ctx, conn, target, change)
		return changed(c, target, n, err)
	})
	c.Flags(cmd.Flags(), true)
	cmd.ValidArgsFunction = c.Complete(verb.LinkNames)
	return cmd
}

// changed prints the result of a verb that changed n interfaces, and returns its
// error. If the verb failed, n can be lower than the number of selected interfaces.
func changed(c *verb.Call, target stacknet.Target, n int, err error) error {
	if err != nil {
		return verb.BadValue(err)
	}
	if c.Output == cli.OutputJSON {
		return cli.WriteJSON(c.Stdout, map[string]any{"target": target.String(), "changed": n})
	}
	if target.Name == "" {
		cli.Note(c.Stderr, verb.Program, "%v: %s", target, text.Plural(n, "interface"))
	}
	return nil
}

// parseTarget parses NAME, dev NAME or group N.
func parseTarget(w *verb.Words) (stacknet.Target, error) {
	switch first := w.Next(); first {
	case "":
		return stacknet.Target{}, exit.Usagef("no interface given; expected NAME or group N; see %s --help", w.Cmd.CommandPath())
	case "group":
		n, err := w.Number("group", 0, math.MaxInt32)
		return stacknet.Target{Group: n}, err
	case "dev":
		name, err := w.Value("dev", "interface")
		return stacknet.Target{Name: name}, err
	default:
		return stacknet.Target{Name: first}, nil
	}
}

func parseLinkSet(cmd *cobra.Command, args []string) (stacknet.Target, stacknet.Change, error) {
	w := verb.Words{Cmd: cmd, Left: args}
	var change stacknet.Change
	target, err := parseTarget(&w)
	given := map[string]bool{}
	for err == nil && len(w.Left) > 0 {
		word := w.Next()
		key := word
		if word == "down" {
			key = "up"
		}
		if given[key] {
			return target, change, exit.Usagef("%s of %v: given twice", word, target)
		}
		given[key] = true
		switch word {
		case "up", "down":
			up := word == "up"
			change.Up = &up
		case "mtu":
			change.MTU, err = w.Number("mtu", 1, math.MaxInt32)
		case "address":
			change.MAC, err = parseMAC(&w)
		case "group":
			var n int
			n, err = w.Number("group", 0, math.MaxInt32)
			change.Group = &n
		default:
			err = w.Unexpected(word)
		}
	}
	if err == nil && len(given) == 0 {
		err = exit.Usagef("%v: no change given; see %s --help", target, cmd.CommandPath())
	}
	return target, change, err
}

// parseMAC parses the link address after "address".
func parseMAC(w *verb.Words) (net.HardwareAddr, error) {
	v, err := w.Value("address", "link address")
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(v)
	if err != nil || len(mac) != 6 {
		return nil, exit.Usagef("address %q: expected a link address such as 02:00:00:00:00:01", v)
	}
	return mac, nil
}
