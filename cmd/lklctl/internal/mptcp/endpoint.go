// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

func endpointCommand(c *verb.Call) *cobra.Command {
	show := onStack(c, c.Query, func(ctx context.Context, o opened, _ []string) error {
		return showEndpoints(ctx, c, o, stacknet.Endpoint{})
	})
	cmd := &cobra.Command{
		Use:   "endpoint [show|add|del|change|flush ...]",
		Short: "show, add, delete or change MPTCP endpoints",
		Long: `endpoint shows the MPTCP endpoints of a stack and how many subflows use each, or
changes them as ip-mptcp(8) does. Changes apply to open connections too.`,
		Example: `  lklctl mptcp endpoint add 10.1.0.7 dev eth1 subflow backup
  lklctl mptcp endpoint change 10.1.0.2 backup
  lklctl mptcp endpoint del 10.1.0.2`,
		Args: verb.NoArgs,
		RunE: show,
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	c.EmptyFlag(cmd.Flags())
	verb.Document(cmd, []endpointRow{})
	cmd.AddCommand(
		endpointVerb(c, "show", "[ADDRESS|id ID]", "show the endpoints, or one", "",
			func(ctx context.Context, o opened, w *endpointWords) error {
				if w.Addr.IsValid() || w.ID != 0 {
					if _, err := w.find(o.Netlink); err != nil {
						return err
					}
				}
				return showEndpoints(ctx, c, o, w.Endpoint)
			}),
		endpointVerb(c, "add", "ADDRESS [dev NAME] [id ID] [port PORT] [FLAG...]", "add an endpoint",
			` FLAG is one of:

  subflow    create a subflow from ADDRESS in each connection (default)
  signal     announce ADDRESS, with PORT if given, to the peer
  backup     use the subflow only if no other one works
  fullmesh   create a subflow to each address of the peer`, changing(addEndpoint)),
		endpointVerb(c, "del", "ADDRESS|id ID", "delete an endpoint and close its subflows", "", changing(delEndpoint)),
		endpointVerb(c, "change", "ADDRESS|id ID FLAG...", "change an endpoint's flags",
			" FLAG is backup, nobackup, fullmesh or nofullmesh.", changing(changeEndpoint)),
		endpointVerb(c, "flush", "", "delete all endpoints and close their subflows", "", changing(flushEndpoints)),
	)
	return cmd
}

// door is the method Query or Change of a verb.Call.
type door func(verb.Body) func(*cobra.Command, []string) error

// opened is a stack with an open netlink connection.
type opened struct {
	*stacknet.Netlink
	conn *stackconn.Conn
}

// onStack returns the body of a verb that uses netlink with the stack.
func onStack(c *verb.Call, by door, body func(ctx context.Context, o opened, args []string) error) func(*cobra.Command, []string) error {
	return by(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
		n, err := stacknet.Open(ctx, conn)
		if err != nil {
			return err
		}
		defer n.Close()
		return body(ctx, opened{n, conn}, args)
	})
}

// endpointWords is an endpoint as given on the command line.
type endpointWords struct {
	verb.Words
	stacknet.Endpoint
	dev   string
	clear uint32 // flags to clear
}

// endpointBody performs a subcommand of endpoint.
type endpointBody func(ctx context.Context, o opened, w *endpointWords) error

func changing(f func(*stacknet.Netlink, *endpointWords) error) endpointBody {
	return func(_ context.Context, o opened, w *endpointWords) error { return f(o.Netlink, w) }
}

func endpointVerb(c *verb.Call, name, form, short, more string, body endpointBody) *cobra.Command {
	parse := func(cmd *cobra.Command, args []string) (*endpointWords, error) {
		w := &endpointWords{Words: verb.Words{Cmd: cmd, Left: args}}
		return w, w.parse(name)
	}
	example := map[string]string{
		"show": "show", "add": "add 10.1.0.7 dev eth1 signal", "del": "del id 3", "change": "change 10.1.0.2 nobackup", "flush": "flush",
	}[name]
	cmd := &cobra.Command{
		Use:     strings.TrimSpace(name + " " + form),
		Short:   short,
		Long:    strings.ToUpper(short[:1]) + short[1:] + "." + more,
		Example: "  lklctl mptcp endpoint " + example,
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := parse(cmd, args)
			return err
		},
	}
	by := c.Change
	if name == "show" {
		by = c.Query
	}
	if name == "show" {
		verb.Document(cmd, []endpointRow{})
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onStack(c, by, func(ctx context.Context, o opened, args []string) error {
			w, err := parse(cmd, args)
			if err != nil {
				return err
			}
			return body(ctx, o, w)
		})(cmd, args)
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	return cmd
}

// endpointFlags lists the names of the flags in the order of ip-mptcp(8).
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

// parse parses the arguments of a verb.
func (w *endpointWords) parse(name string) error {
	for len(w.Left) > 0 {
		word := w.Next()
		if err := w.word(name, word); err != nil {
			return err
		}
	}
	switch {
	case name == "add" && !w.Addr.IsValid():
		return exit.Usagef("no ADDRESS given; see %s --help", w.Cmd.CommandPath())
	case name == "flush" && (w.Addr.IsValid() || w.ID != 0):
		return exit.Usagef("flush: deletes all endpoints; use %s del to delete one", w.Cmd.Parent().CommandPath())
	case name != "show" && name != "flush" && !w.Addr.IsValid() && w.ID == 0:
		return exit.Usagef("no ADDRESS or id ID given; see %s --help", w.Cmd.CommandPath())
	case name == "change" && w.Flags == 0 && w.clear == 0:
		return exit.Usagef("no flag given; see %s --help", w.Cmd.CommandPath())
	case w.Flags&w.clear != 0:
		return exit.Usagef("a flag is both set and cleared; remove one of them")
	case w.Port != 0 && w.Flags&stacknet.EndpointSignal == 0:
		return exit.Usagef("port %d: requires the flag signal", w.Port)
	case w.Flags&stacknet.EndpointSignal != 0 && w.Flags&stacknet.EndpointFullmesh != 0:
		return exit.Usagef("signal and fullmesh conflict; choose one")
	}
	return nil
}

func (w *endpointWords) word(name, word string) (err error) {
	adds := name == "add"
	change := strings.TrimPrefix(word, "no")
	for _, f := range endpointFlags {
		live := f.bit == stacknet.EndpointBackup || f.bit == stacknet.EndpointFullmesh
		switch {
		case f.name == word && (adds && f.bit != stacknet.EndpointImplicit || name == "change" && live):
			w.Flags |= f.bit
			return nil
		case f.name == change && name == "change" && live:
			w.clear |= f.bit
			return nil
		}
	}
	switch {
	case word == "id" && w.ID == 0:
		w.ID, err = w.Number("id", 1, 255)
		return err
	case word == "dev" && adds && w.dev == "":
		w.dev, err = w.Value("dev", "interface")
		return err
	case word == "port" && adds && w.Port == 0:
		w.Port, err = w.Number("port", 1, 65535)
		return err
	}
	a, err := netip.ParseAddr(word)
	if err != nil || w.Addr.IsValid() || a.Zone() != "" {
		return w.Unexpected(word)
	}
	w.Addr = a.Unmap()
	return nil
}

// find finds the endpoint that the arguments select.
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
		return stacknet.Endpoint{}, exit.Usagef("%s: the stack has no such MPTCP endpoint; see `lklctl mptcp endpoint`", what)
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
			return exit.Usagef("dev %s: the stack has no such interface; see `lklctl link`", w.dev)
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

func flushEndpoints(n *stacknet.Netlink, _ *endpointWords) error {
	return endpointError("deleting all MPTCP endpoints", n.Do(stacknet.FlushEndpoints())[0])
}

// endpointError describes a refusal by the stack.
func endpointError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ERANGE) {
		err = fmt.Errorf("the stack allows no more endpoints: %w", err)
	}
	return verb.BadValue(fmt.Errorf("%s: %w", doing, err))
}

// endpointRow is an endpoint in the JSON output.
type endpointRow struct {
	ID      int      `json:"id"`             // ID of the endpoint, 1 to 255
	Address string   `json:"address"`        // local address of subflows, or address that is announced to the peer
	Port    int      `json:"port,omitempty"` // port that is announced to the peer; absent: the port of the connection
	Dev     string   `json:"dev,omitempty"`  // interface to which the subflows are bound; absent: none
	Flags   []string `json:"flags"`          // flags of the endpoint, as in ip-mptcp(8): subflow, signal, backup, fullmesh, implicit
	Used    int      `json:"subflows"`       // number of current subflows from this address, including initial subflows
}

// subflowsFrom counts the subflows of MPTCP connections by their local address.
func subflowsFrom(ctx context.Context, conn *stackconn.Conn) (map[netip.Addr]int, error) {
	all, err := sockdiag.List(ctx, conn, sockdiag.TCP)
	if err != nil {
		return nil, err
	}
	n := map[netip.Addr]int{}
	for _, s := range all {
		if s.Subflow != nil && s.Subflow.Token.N != 0 && s.State == sockdiag.Established {
			n[s.Local.Addr().Unmap()]++
		}
	}
	return n, nil
}

func showEndpoints(ctx context.Context, c *verb.Call, n opened, which stacknet.Endpoint) error {
	all, err := n.Endpoints()
	if err != nil {
		return err
	}
	links, err := n.Links()
	if err != nil {
		return err
	}
	used, err := subflowsFrom(ctx, n.conn)
	if err != nil {
		return err
	}
	rows := []endpointRow{}
	for _, e := range all {
		if !meant(e, which) {
			continue
		}
		r := endpointRow{ID: e.ID, Address: e.Addr.String(), Port: e.Port, Flags: []string{}, Used: used[e.Addr.Unmap()]}
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
	t := cli.NewTable(">ID", "ADDRESS", ">PORT", "DEV", ">USED", "FLAGS")
	for _, r := range rows {
		port := ""
		if r.Port != 0 {
			port = fmt.Sprint(r.Port)
		}
		t.Row(fmt.Sprint(r.ID), r.Address, port, r.Dev, fmt.Sprint(r.Used), strings.Join(r.Flags, " "))
	}
	return c.Show(rows, len(rows), c.Empty("the stack has no MPTCP endpoint"), t.Write)
}
