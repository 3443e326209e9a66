// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

func (c *ctl) endpointCommand() *cobra.Command {
	show := c.onStack(c.query, func(n *stacknet.Netlink, _ []string) error { return c.showEndpoints(n, stacknet.Endpoint{}) })
	cmd := &cobra.Command{
		Use:   "endpoint [show|add|del|change ...]",
		Short: "show, add, delete or change MPTCP endpoints",
		Long: `endpoint shows the stack's MPTCP endpoints, or changes them, as ip-mptcp(8)
does: open connections make or close subflows at once. lklrun gives each
interface that carries one endpoint for each address; what is deleted or changed
here it leaves so, for as long as the address is there.`,
		Example: `  lklctl mptcp endpoint
  lklctl mptcp endpoint add 10.1.0.7 dev eth1 subflow backup
  lklctl mptcp endpoint change 10.1.0.2 backup
  lklctl mptcp endpoint del 10.1.0.2`,
		Args: noArgs,
		RunE: show,
	}
	c.flags(cmd.Flags(), true)
	cmd.AddCommand(
		c.endpointVerb("show", "[ADDRESS|id ID]", "show the endpoints, or one", "",
			func(n *stacknet.Netlink, w *endpointWords) error {
				if w.Addr.IsValid() || w.ID != 0 {
					if _, err := w.find(n); err != nil {
						return err
					}
				}
				return c.showEndpoints(n, w.Endpoint)
			}),
		c.endpointVerb("add", "ADDRESS [dev NAME] [id ID] [port PORT] [FLAG...]", "add an endpoint",
			`

FLAG is subflow (connections make a subflow from it), signal (the peer is told
of it, on PORT if one is given), backup (data go there only while nothing else
is left) or fullmesh (one subflow to each address of the peer's). Without any it
is subflow.`, addEndpoint),
		c.endpointVerb("del", "ADDRESS|id ID", "delete an endpoint, and close its subflows", "", delEndpoint),
		c.endpointVerb("change", "ADDRESS|id ID FLAG...", "change an endpoint's flags",
			"\n\nFLAG is backup, nobackup, fullmesh or nofullmesh.", changeEndpoint),
	)
	return cmd
}

// A door is query or change.
type door func(queryBody) func(*cobra.Command, []string) error

// onStack is a verb's body that speaks netlink with the stack.
func (c *ctl) onStack(by door, body func(n *stacknet.Netlink, args []string) error) func(*cobra.Command, []string) error {
	return by(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
		n, err := stacknet.Open(ctx, conn)
		if err != nil {
			return err
		}
		defer n.Close()
		return body(n, args)
	})
}

// endpointWords is an endpoint as it is typed.
type endpointWords struct {
	words
	stacknet.Endpoint
	dev   string
	clear uint32 // flags that shall go
}

func (c *ctl) endpointVerb(verb, form, short, more string, body func(*stacknet.Netlink, *endpointWords) error) *cobra.Command {
	parse := func(cmd *cobra.Command, args []string) (*endpointWords, error) {
		w := &endpointWords{words: words{cmd, args}}
		return w, w.parse(verb)
	}
	example := map[string]string{
		"show": "show", "add": "add 10.1.0.7 dev eth1 signal", "del": "del id 3", "change": "change 10.1.0.2 nobackup",
	}[verb]
	cmd := &cobra.Command{
		Use:     verb + " " + form,
		Short:   short,
		Long:    short + "." + more,
		Example: "  lklctl mptcp endpoint " + example,
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := parse(cmd, args)
			return err
		},
	}
	by := c.change
	if verb == "show" {
		by = c.query
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.onStack(by, func(n *stacknet.Netlink, args []string) error {
			w, err := parse(cmd, args)
			if err != nil {
				return err
			}
			return body(n, w)
		})(cmd, args)
	}
	c.flags(cmd.Flags(), true)
	return cmd
}

// endpointFlags are the flags' names, in ip-mptcp(8)'s order.
var endpointFlags = []struct {
	name string
	bit  uint32
}{
	{"subflow", stacknet.EndpointSubflow},
	{"signal", stacknet.EndpointSignal},
	{"backup", stacknet.EndpointBackup},
	{"fullmesh", stacknet.EndpointFullmesh},
	{"implicit", stacknet.EndpointImplicit},
}

// parse reads the words of a verb.
func (w *endpointWords) parse(verb string) error {
	for len(w.left) > 0 {
		word := w.next()
		if err := w.word(verb, word); err != nil {
			return err
		}
	}
	switch {
	case verb == "add" && !w.Addr.IsValid():
		return cli.Usagef("no ADDRESS given: see %s --help", w.cmd.CommandPath())
	case verb != "show" && !w.Addr.IsValid() && w.ID == 0:
		return cli.Usagef("no ADDRESS nor id ID given: see %s --help", w.cmd.CommandPath())
	case verb == "change" && w.Flags == 0 && w.clear == 0:
		return cli.Usagef("nothing to change: see %s --help", w.cmd.CommandPath())
	case w.Flags&w.clear != 0:
		return cli.Usagef("a flag is to be set and to be taken away")
	case w.Port != 0 && w.Flags&stacknet.EndpointSignal == 0:
		return cli.Usagef("port %d: is for an endpoint with the flag signal", w.Port)
	case w.Flags&stacknet.EndpointSignal != 0 && w.Flags&stacknet.EndpointFullmesh != 0:
		return cli.Usagef("signal and fullmesh: the stack takes one of them for an endpoint")
	}
	return nil
}

func (w *endpointWords) word(verb, word string) (err error) {
	adds := verb == "add"
	change := strings.TrimPrefix(word, "no")
	for _, f := range endpointFlags {
		live := f.bit == stacknet.EndpointBackup || f.bit == stacknet.EndpointFullmesh
		switch {
		case f.name == word && (adds && f.bit != stacknet.EndpointImplicit || verb == "change" && live):
			w.Flags |= f.bit
			return nil
		case f.name == change && verb == "change" && live:
			w.clear |= f.bit
			return nil
		}
	}
	switch {
	case word == "id" && w.ID == 0:
		w.ID, err = w.number("id", 1, 255)
		return err
	case word == "dev" && adds && w.dev == "":
		w.dev, err = w.value("dev", "interface")
		return err
	case word == "port" && adds && w.Port == 0:
		w.Port, err = w.number("port", 1, 65535)
		return err
	}
	a, err := netip.ParseAddr(word)
	if err != nil || w.Addr.IsValid() || a.Zone() != "" {
		return w.unexpected(word)
	}
	w.Addr = a.Unmap()
	return nil
}

// find looks for the endpoint that is meant.
func (w *endpointWords) find(n *stacknet.Netlink) (stacknet.Endpoint, error) {
	all, err := n.Endpoints()
	if err != nil {
		return stacknet.Endpoint{}, err
	}
	at := slices.IndexFunc(all, func(e stacknet.Endpoint) bool { return meant(e, w.Endpoint) })
	if at < 0 {
		what := w.Addr.String()
		if w.ID != 0 {
			what = fmt.Sprintf("id %d", w.ID)
		}
		return stacknet.Endpoint{}, cli.Usagef("%s: the stack has no such MPTCP endpoint; see `lklctl mptcp endpoint`", what)
	}
	return all[at], nil
}

func meant(e, by stacknet.Endpoint) bool {
	return (by.ID == 0 || e.ID == by.ID) && (!by.Addr.IsValid() || e.Addr == by.Addr)
}

func addEndpoint(n *stacknet.Netlink, w *endpointWords) error {
	if w.Flags&(stacknet.EndpointSubflow|stacknet.EndpointSignal) == 0 {
		w.Flags |= stacknet.EndpointSubflow
	}
	if w.dev != "" {
		l, ok, err := n.Link(w.dev)
		if err != nil {
			return err
		}
		if !ok {
			return cli.Usagef("dev %s: the stack has no such interface; see `lklctl link`", w.dev)
		}
		w.Ifindex = l.Index
	}
	return endpointError("adding the MPTCP endpoint "+w.Addr.String(), n.Do(stacknet.AddEndpoint(w.Endpoint))[0])
}

func delEndpoint(n *stacknet.Netlink, w *endpointWords) error {
	e, err := w.find(n)
	if err != nil {
		return err
	}
	return endpointError("deleting the MPTCP endpoint "+e.Addr.String(), n.Do(stacknet.DelEndpoint(e))[0])
}

func changeEndpoint(n *stacknet.Netlink, w *endpointWords) error {
	e, err := w.find(n)
	if err != nil {
		return err
	}
	e.Flags = e.Flags&^w.clear | w.Flags
	return endpointError("changing the MPTCP endpoint "+e.Addr.String(), n.Do(stacknet.ChangeEndpoint(e))[0])
}

// endpointError says what the stack refused.
func endpointError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ERANGE) {
		err = fmt.Errorf("there are as many as there can be: %w", err)
	}
	return badValue(fmt.Errorf("%s: %w", doing, err))
}

// endpointRow is an endpoint as it is written.
type endpointRow struct {
	ID      int      `json:"id"`
	Address string   `json:"address"`
	Port    int      `json:"port,omitempty"`
	Dev     string   `json:"dev,omitempty"`
	Flags   []string `json:"flags"`
}

func (c *ctl) showEndpoints(n *stacknet.Netlink, which stacknet.Endpoint) error {
	all, err := n.Endpoints()
	if err != nil {
		return err
	}
	links, err := n.Links()
	if err != nil {
		return err
	}
	rows := []endpointRow{}
	for _, e := range all {
		if !meant(e, which) {
			continue
		}
		r := endpointRow{ID: e.ID, Address: e.Addr.String(), Port: e.Port, Flags: []string{}}
		if at := slices.IndexFunc(links, func(l stacknet.LinkState) bool { return l.Index == e.Ifindex }); at >= 0 {
			r.Dev = links[at].Name
		}
		for _, f := range endpointFlags {
			if e.Flags&f.bit != 0 {
				r.Flags = append(r.Flags, f.name)
			}
		}
		rows = append(rows, r)
	}
	t := cli.NewTable(">ID", "ADDRESS", ">PORT", "DEV", "FLAGS")
	for _, r := range rows {
		port := ""
		if r.Port != 0 {
			port = fmt.Sprint(r.Port)
		}
		t.Row(fmt.Sprint(r.ID), r.Address, port, r.Dev, strings.Join(r.Flags, " "))
	}
	return c.show(rows, len(rows), c.nothing("the stack has no MPTCP endpoint"), t.Write)
}

func (c *ctl) limitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits [get | set [subflows N] [add_addr_accepted N]]",
		Short: "show or set the limits of MPTCP connections",
		Long: `limits shows how many subflows beside the first each connection may have, and
how many addresses that the peer announces it accepts, or sets them, each from 0
to 8.`,
		Example: "  lklctl mptcp limits\n  lklctl mptcp limits set subflows 2",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := parseLimits(cmd, args)
			return err
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := parseLimits(cmd, args)
		if err != nil {
			return err
		}
		by := c.query
		if change != nil {
			by = c.change
		}
		return c.onStack(by, func(n *stacknet.Netlink, _ []string) error {
			limits, err := n.Limits()
			if err != nil {
				return err
			}
			if change != nil {
				change(&limits)
				if err := n.Do(stacknet.SetLimits(limits))[0]; err != nil {
					return endpointError("setting the MPTCP limits", err)
				}
				if limits, err = n.Limits(); err != nil {
					return err
				}
			}
			if c.output == cli.OutputJSON {
				return cli.WriteJSON(c.stdout, map[string]int{"subflows": limits.Subflows, "add_addr_accepted": limits.AddAddrAccepted})
			}
			_, err = fmt.Fprintf(c.stdout, "subflows %d add_addr_accepted %d\n", limits.Subflows, limits.AddAddrAccepted)
			return err
		})(cmd, args)
	}
	c.flags(cmd.Flags(), true)
	return cmd
}

// parseLimits returns what shall change; nil: nothing.
func parseLimits(cmd *cobra.Command, args []string) (func(*stacknet.MPTCPLimits), error) {
	w := words{cmd, args}
	switch first := w.next(); {
	case first == "" || first == "get" && len(w.left) == 0:
		return nil, nil
	case first == "get":
		return nil, w.unexpected(w.next())
	case first != "set":
		return nil, w.unexpected(first)
	case len(w.left) == 0:
		return nil, cli.Usagef("nothing to set: see %s --help", cmd.CommandPath())
	}
	const most = 8 // MPTCP_PM_ADDR_MAX, net/mptcp/protocol.h
	var changes []func(*stacknet.MPTCPLimits)
	for len(w.left) > 0 {
		key := w.next()
		if key != "subflows" && key != "subflow" && key != "add_addr_accepted" {
			return nil, w.unexpected(key)
		}
		n, err := w.number(key, 0, most)
		if err != nil {
			return nil, err
		}
		changes = append(changes, func(m *stacknet.MPTCPLimits) {
			if key == "add_addr_accepted" {
				m.AddAddrAccepted = n
			} else {
				m.Subflows = n
			}
		})
	}
	return func(m *stacknet.MPTCPLimits) {
		for _, change := range changes {
			change(m)
		}
	}, nil
}
