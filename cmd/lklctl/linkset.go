// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

func (c *ctl) linkSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME|group N [up|down] [mtu N] [address MAC] [group N]",
		Short: "change an interface, or all of a group at once",
		Long: `set changes what is named of an interface, or of all interfaces of a group:
those change by one message to the stack (their group's number by one for each).

An interface's own address can be changed while it is down, where its driver
does not allow more.`,
		Example: `  lklctl link set eth1 down
  lklctl link set eth0 mtu 1400 group 7
  lklctl link set group 7 mtu 1400`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := parseLinkSet(cmd, args)
			return err
		},
	}
	cmd.RunE = c.change(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
		target, change, err := parseLinkSet(cmd, args)
		if err != nil {
			return err
		}
		n, err := stacknet.SetLink(ctx, conn, target, change)
		return c.changed(target, n, err)
	})
	c.flags(cmd.Flags(), true)
	cmd.ValidArgsFunction = c.complete(linkNames)
	return cmd
}

// changed ends a verb that changed n interfaces, possibly not all.
func (c *ctl) changed(target stacknet.Target, n int, err error) error {
	if err != nil {
		return badValue(err)
	}
	if c.output == cli.OutputJSON {
		return cli.WriteJSON(c.stdout, map[string]any{"target": target.String(), "changed": n})
	}
	if target.Name == "" {
		cli.Note(c.stderr, program, "%v: %s", target, plural(n, "interface"))
	}
	return nil
}

// badValue marks a value refused by the stack as an error of the command line.
func badValue(err error) error {
	for _, no := range []error{
		stacknet.ErrNoTarget, syscall.EINVAL, syscall.ERANGE, syscall.EADDRNOTAVAIL, syscall.EOPNOTSUPP, syscall.EEXIST, syscall.ENOENT, syscall.ESRCH,
	} {
		if errors.Is(err, no) {
			return &exit.UsageError{Err: err}
		}
	}
	return err
}

// words is a list of arguments to be parsed in order.
type words struct {
	cmd  *cobra.Command
	left []string
}

// next returns the next word, or "" after the last one.
func (w *words) next() string {
	if len(w.left) == 0 {
		return ""
	}
	first := w.left[0]
	w.left = w.left[1:]
	return first
}

// value returns the word after key.
func (w *words) value(key, what string) (string, error) {
	v := w.next()
	if v == "" {
		return "", exit.Usagef("%s: no %s behind it: see %s --help", key, what, w.cmd.CommandPath())
	}
	return v, nil
}

// number returns the number after key.
func (w *words) number(key string, least, most int) (int, error) {
	v, err := w.value(key, "number")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, exit.Usagef("%s %q: expected a number from %d to %d", key, v, least, most)
	}
	return n, nil
}

// unexpected rejects a word.
func (w *words) unexpected(word string) error {
	return exit.Usagef("unexpected argument %q: see %s --help", word, w.cmd.CommandPath())
}

// target parses NAME, dev NAME or group N.
func (w *words) target() (stacknet.Target, error) {
	switch first := w.next(); first {
	case "":
		return stacknet.Target{}, exit.Usagef("no interface given: NAME or group N: see %s --help", w.cmd.CommandPath())
	case "group":
		n, err := w.number("group", 0, math.MaxInt32)
		return stacknet.Target{Group: n}, err
	case "dev":
		name, err := w.value("dev", "interface")
		return stacknet.Target{Name: name}, err
	default:
		return stacknet.Target{Name: first}, nil
	}
}

func parseLinkSet(cmd *cobra.Command, args []string) (stacknet.Target, stacknet.Change, error) {
	w := words{cmd, args}
	var change stacknet.Change
	target, err := w.target()
	given := map[string]bool{}
	for err == nil && len(w.left) > 0 {
		word := w.next()
		key := word
		if word == "down" {
			key = "up"
		}
		if given[key] {
			return target, change, exit.Usagef("%s: given twice", fmt.Sprintf("%s of %v", word, target))
		}
		given[key] = true
		switch word {
		case "up", "down":
			up := word == "up"
			change.Up = &up
		case "mtu":
			change.MTU, err = w.number("mtu", 1, math.MaxInt32)
		case "address":
			change.MAC, err = w.mac()
		case "group":
			var n int
			n, err = w.number("group", 0, math.MaxInt32)
			change.Group = &n
		default:
			err = w.unexpected(word)
		}
	}
	if err == nil && len(given) == 0 {
		err = exit.Usagef("%v: nothing to change: see %s --help", target, cmd.CommandPath())
	}
	return target, change, err
}

// mac parses the link address after "address".
func (w *words) mac() (net.HardwareAddr, error) {
	v, err := w.value("address", "link address")
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(v)
	if err != nil || len(mac) != 6 {
		return nil, exit.Usagef("address %q: expected a link address such as 02:00:00:00:00:01", v)
	}
	return mac, nil
}
