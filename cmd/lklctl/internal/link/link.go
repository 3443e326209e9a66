// SPDX-License-Identifier: Apache-2.0

// Package link contains the verbs about the stack's interfaces: link, addr, lease and
// path.
package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
	_ "github.com/lklrun/lklrun/pkg/config/types" // registers the interface types for link add
)

// Command returns the verb link.
func Command(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link [add SPEC | del NAME | set TARGET CHANGE...]",
		Short: "show, add, delete or change the stack's interfaces",
		Long:  "link shows, adds, deletes or changes the stack's interfaces.",
		Example: `  lklctl link add tap:t1,ip=10.1.0.2/24,gw=10.1.0.1,backup
  lklctl link set group 7 mtu 1400
  lklctl link del eth1`,
		Args: verb.NoArgs,
		RunE: c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			rows, err := linkRows(ctx, info, conn)
			if err != nil {
				return err
			}
			if c.Output == cli.OutputJSON {
				return cli.WriteJSON(c.Stdout, rows)
			}
			t := cli.NewTable("NAME", "IS", "STATE", ">MTU", ">GROUP", "ADDRESS", "ADDRESSES").Narrow()
			for _, r := range rows {
				t.Row(r.Name, r.Is, r.State, fmt.Sprint(r.MTU), fmt.Sprint(r.Group), r.Address, strings.Join(r.Addresses, " "))
			}
			if err := t.Write(c.Stdout); err != nil {
				return err
			}
			return writePeers(c, rows)
		}),
	}
	c.Flags(cmd.Flags(), true)
	cmd.AddCommand(linkAddCommand(c), linkDelCommand(c), linkSetCommand(c))
	return cmd
}

// linkRow is an interface in the output of link.
type linkRow struct {
	Name      string   `json:"name"`
	Index     int      `json:"index"`
	Is        string   `json:"is,omitempty"` // TYPE:HOST if lklrun created it, otherwise the kind of device
	State     string   `json:"state"`
	MTU       int      `json:"mtu"`
	Group     int      `json:"group"`
	Address   string   `json:"address,omitempty"`
	Addresses []string `json:"addresses"`

	Peers []rpc.TunnelPeer `json:"peers,omitempty"` // of a tunnel (wg or udp)
}

func linkRows(ctx context.Context, info *instance.Info, conn *stackconn.Conn) ([]linkRow, error) {
	links, err := stacknet.Links(ctx, conn)
	if err != nil {
		return nil, err
	}
	addrs, err := stacknet.Addresses(ctx, conn)
	if err != nil {
		return nil, err
	}
	of := map[int][]string{}
	for _, a := range addrs {
		of[a.IfIndex] = append(of[a.IfIndex], a.Prefix.String())
	}
	is := map[string]string{}
	var peers map[string][]rpc.TunnelPeer
	if slices.ContainsFunc(info.Interfaces, func(i instance.Interface) bool { return i.Type == "wg" || i.Type == "udp" }) {
		// A run of an older lklrun has no answer, and one that ends gives none.
		if peers, err = rpc.Do(ctx, conn, rpc.TunnelPeers, struct{}{}, nil); errors.Is(err, rpc.ErrNoAnswer) {
			return nil, err
		}
	}
	for _, i := range info.Interfaces {
		is[i.Name] = i.Type
		if i.Host != "" {
			is[i.Name] += ":" + i.Host
		}
	}
	rows := []linkRow{}
	for _, l := range stacknet.Sorted(links) {
		r := linkRow{
			Name: l.Name, Index: l.Index, Is: is[l.Name], State: linkState(l), MTU: l.MTU, Group: l.Group,
			Addresses: append([]string{}, of[l.Index]...), Peers: peers[l.Name],
		}
		if r.Is == "" {
			r.Is = l.Kind
		}
		if l.Flags&unix.IFF_LOOPBACK == 0 && len(l.MAC) > 0 {
			r.Address = l.MAC.String()
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// writePeers writes a table of the peers of tunnels, if there are any.
func writePeers(c *verb.Call, rows []linkRow) error {
	t, any := cli.NewTable("NAME", "PEER", "ENDPOINT", "HANDSHAKE", ">RECEIVED", ">SENT").Narrow(), false
	for _, r := range rows {
		for _, p := range r.Peers {
			when := "never"
			if !p.LastHandshake.IsZero() {
				when = text.ShortDuration(time.Since(p.LastHandshake)) + " ago"
			}
			t.Row(r.Name, p.PublicKey, cmp.Or(p.Endpoint, "-"), when, text.Scaled(float64(p.Received), "B"), text.Scaled(float64(p.Sent), "B"))
			any = true
		}
	}
	if !any {
		return nil
	}
	if _, err := fmt.Fprintln(c.Stdout); err != nil {
		return err
	}
	return t.Write(c.Stdout)
}

// linkState returns down, no-carrier (up, but without carrier) or up.
func linkState(l stacknet.LinkState) string {
	switch {
	case !l.Up():
		return "down"
	case l.Flags&unix.IFF_RUNNING == 0:
		return "no-carrier"
	}
	return "up"
}

func linkAddCommand(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add SPEC",
		Short: "add an interface to the stack",
		Long: `add adds an interface with the SPEC of lklrun --if, and prints its name. lklrun
opens it with its own rights; fd:N is a descriptor of lklctl.`,
		Example: `  lklctl link add tap:t1,ip=10.1.0.2/24,gw=10.1.0.1
  lklctl link add user -n web
  lklctl link add fd:3,ip=10.2.0.2/24 3<>/dev/net/tun`,
		Args: verb.OneArg("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := config.ParseInterface(args[0])
			if err != nil {
				return &exit.UsageError{Err: err}
			}
			var file *os.File
			if spec.FD != 0 {
				if c.Far != nil {
					return exit.Usagef("--device %s: fd:%d is a descriptor of this machine, which the device cannot use; use another type", c.Device, spec.FD)
				}
				if file, err = inherited(spec.FD); err != nil {
					return err
				}
				defer file.Close()
			}
			return askLklrun(c, func(ctx context.Context, conn *stackconn.Conn) error {
				added, err := rpc.Do(ctx, conn, rpc.AddLink, rpc.LinkSpec{Spec: args[0]}, file)
				if err != nil {
					return err
				}
				for _, n := range added.Notes {
					cli.Note(c.Stderr, verb.Program, "%s", n)
				}
				if c.Output == cli.OutputJSON {
					return cli.WriteJSON(c.Stdout, added)
				}
				_, err = fmt.Fprintln(c.Stdout, added.Name)
				return err
			})(cmd, args)
		},
	}
	c.Flags(cmd.Flags(), true)
	cmd.ValidArgsFunction = cli.CompleteInterface
	return cmd
}

// inherited returns a copy of a descriptor that this process has inherited.
func inherited(n int) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	flags, ferr := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
	if err != nil || ferr != nil || flags&unix.FD_CLOEXEC != 0 { // descriptors opened by this process have the flag
		if err == nil {
			unix.Close(fd)
		}
		return nil, exit.Usagef("fd:%d: descriptor %[1]d is not open; open it in the shell that starts lklctl, for example with %[1]d<>FILE", n)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("fd:%d", n)), nil
}

func linkDelCommand(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "del NAME",
		Short: "delete an interface from the stack",
		Long: `del deletes an interface that lklrun added, with its addresses, routes and MPTCP
endpoints, and undoes the changes for it on the host.`,
		Example: "  lklctl link del eth1",
		Args:    verb.OneArg("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askLklrun(c, func(ctx context.Context, conn *stackconn.Conn) error {
				_, err := rpc.Do(ctx, conn, rpc.DelLink, rpc.LinkName{Name: args[0]}, nil)
				if err == nil && c.Output == cli.OutputJSON {
					err = cli.WriteJSON(c.Stdout, map[string]any{"name": args[0], "deleted": true})
				}
				return err
			})(cmd, args)
		},
	}
	c.Flags(cmd.Flags(), true)
	cmd.ValidArgsFunction = c.Complete(verb.LinkNames)
	return cmd
}

// askLimit is the timeout of a request to lklrun. lklrun has a timeout of its own
// for its work. It may have to wait, for example for a DHCP server.
const askLimit = 90 * time.Second

// askLklrun returns the body of a verb that sends a request to lklrun.
func askLklrun(c *verb.Call, body func(ctx context.Context, conn *stackconn.Conn) error) func(*cobra.Command, []string) error {
	return c.QueryWithin(askLimit, func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ []string) error {
		err := body(ctx, conn)
		if refused := (*rpc.Error)(nil); errors.As(err, &refused) && refused.Usage {
			return &exit.UsageError{Err: err}
		}
		return err
	})
}
