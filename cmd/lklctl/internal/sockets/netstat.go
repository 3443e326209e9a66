// SPDX-License-Identifier: Apache-2.0

// Package sockets contains the verbs netstat and kill.
package sockets

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/sockfilter"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// netstatOptions contains the filter and the flags of netstat. The flags are those
// of ss(8).
type netstatOptions struct {
	socketKinds
	listening, all, connected bool

	processes, numeric            bool
	info, memory, extended, timer bool
	oneLine, noHeader             bool
	summary                       bool

	filter *sockfilter.Filter
}

// Netstat returns the verb netstat.
func Netstat(c *verb.Call) *cobra.Command {
	var o netstatOptions
	var w verb.Watching
	cmd := &cobra.Command{
		Use:     "netstat [-latuwMx046piemsHO] [-f FAMILY] [--timers] [--watch] [FILTER]",
		Aliases: []string{"ss"},
		Short:   "list sockets with their processes",
		Long: `netstat lists the sockets of the stack. The flags are those of ss(8), except
that --timers is its -o; "lklctl help filters" describes FILTER.`,
		Example: `  lklctl netstat -tlp
  lklctl netstat -ti state established '( dport = :443 or dport = :80 )'
  lklctl netstat -o json | jq '.[] | select(.state=="ESTAB") | .remote'`,
		Args: func(_ *cobra.Command, args []string) error {
			err := o.parse(args)
			// -n is a flag of ss, too. Before a word that starts no filter, it selects an instance.
			if err != nil && o.numeric && c.Name == "" && len(args) > 0 && o.parse(args[1:]) == nil {
				return c.NameArg(nil, args[:1])
			}
			return err
		},
		ValidArgsFunction: c.Complete(filterWords),
		RunE: c.Watch(&w, func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			return netstat(ctx, c, info, conn, &o)
		}),
	}
	f := cmd.Flags()
	c.Flags(f, false)
	c.NetnsFlag(f)
	c.EmptyFlag(f)
	verb.Document(cmd, []netstatRow{})
	w.Flag(f)
	o.selecting(f)
	f.BoolVarP(&o.processes, "processes", "p", false, "show every process and descriptor, in the form of ss")
	f.BoolVarP(&o.numeric, "numeric", "n", false, "with a `NAME`: select the instance; alone: accept the -n of ss")
	f.BoolVarP(&o.info, "info", "i", false, "show congestion control, round trips, rates, losses, windows and bytes")
	f.BoolVarP(&o.extended, "extended", "e", false, "show user, inode, cookie, interface and mark")
	f.BoolVarP(&o.memory, "memory", "m", false, "show the memory of each socket")
	f.BoolVar(&o.timer, "timers", false, "show the running timer (-o of ss)")
	f.BoolVarP(&o.oneLine, "oneline", "O", false, "print each socket on one line")
	f.BoolVarP(&o.noHeader, "no-header", "H", false, "omit the header")
	f.BoolVarP(&o.summary, "summary", "s", false, "count the sockets by kind and state")
	return cmd
}

// selecting adds the flags that select sockets.
func (o *netstatOptions) selecting(f *pflag.FlagSet) {
	f.BoolVarP(&o.listening, "listening", "l", false, "show only listening sockets")
	f.BoolVarP(&o.all, "all", "a", false, "show sockets in every state (the default)")
	f.BoolVarP(&o.connected, "connected", "c", false, "show only connected sockets")
	o.flags(f)
}

// parse checks the combination of flags, and parses the filter.
func (o *netstatOptions) parse(args []string) (err error) {
	if o.listening && o.connected {
		return exit.Usagef("-l and -c conflict; choose one")
	}
	for _, family := range o.families {
		if !slices.Contains(familyNames, family) {
			return exit.Usagef("-f %q: expected %s", family, strings.Join(familyNames, ", "))
		}
	}
	if o.filter, err = sockfilter.Parse(args); err != nil {
		return exit.Usagef("filter: %v", err)
	}
	return nil
}

// netstat lists the sockets once.
func netstat(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *netstatOptions) error {
	sockets, err := gather(ctx, conn, o)
	if err != nil {
		return err
	}
	none := c.Empty("instance %q has no matching sockets", info.Name)
	if o.summary {
		rows := summarize(sockets)
		return c.Show(rows, len(rows), none, func(out io.Writer) error { return writeSummary(out, rows) })
	}
	return c.Show(netstatRows(sockets), len(sockets), none, func(out io.Writer) error {
		return writeNetstat(out, sockets, o)
	})
}

// filterWords completes the words of a filter, and interfaces.
func filterWords(ctx context.Context, info *instance.Info, conn *stackconn.Conn, toComplete string) []string {
	words := []string{"state", "exclude", "dst", "src", "dport", "sport", "dev", "and", "or", "not"}
	words = append(words, sockfilter.States()...)
	return append(words, verb.LinkNames(ctx, info, conn, toComplete)...)
}

// netstatRow is a socket in the JSON output of netstat. It contains the addresses
// as in the table. In addition to the list of processes, it contains the first
// process directly.
type netstatRow struct {
	sockdiag.Socket
	Family  string `json:"family"`            // address family: inet, inet6, unix, packet or netlink
	Local   string `json:"local,omitempty"`   // ADDRESS:PORT, with IPv6 in brackets and * for no port; for other families the name of the socket
	Remote  string `json:"remote,omitempty"`  // address of the peer, in the same format
	PID     int    `json:"pid,omitempty"`     // ID, on the host, of the first process that has the socket
	Process string `json:"process,omitempty"` // name of that process
}

// Row is netstatRow for other packages. Embedding requires an exported name, but
// json.md shows the name of the type.
type Row = netstatRow

func netstatRows(sockets []sockdiag.Socket) []netstatRow {
	rows := make([]netstatRow, 0, len(sockets))
	for _, s := range sockets {
		rows = append(rows, NewRow(s))
	}
	return rows
}

// NewRow makes the row of a socket.
func NewRow(s sockdiag.Socket) Row {
	r := netstatRow{Socket: s, Family: familyName(s.Family), Local: LocalAddr(s), Remote: RemoteAddr(s)}
	if len(s.Processes) > 0 {
		r.PID, r.Process = s.Processes[0].PID, s.Processes[0].Comm
	}
	return r
}

// summaryRow contains the counts of one kind of sockets.
type summaryRow struct {
	Proto  sockdiag.Proto `json:"proto"`  // kind of the sockets, as in the list
	Total  int            `json:"total"`  // number of sockets
	IPv4   int            `json:"inet"`   // number of IPv4 sockets
	IPv6   int            `json:"inet6"`  // number of IPv6 sockets
	States map[string]int `json:"states"` // number of sockets in each state
}

// summarize counts sockets, which must be sorted by kind.
func summarize(sockets []sockdiag.Socket) []summaryRow {
	rows := []summaryRow{}
	for _, s := range sockets {
		if len(rows) == 0 || rows[len(rows)-1].Proto != s.Proto {
			rows = append(rows, summaryRow{Proto: s.Proto, States: map[string]int{}})
		}
		r := &rows[len(rows)-1]
		r.Total++
		r.States[s.State.String()]++
		switch familyName(s.Family) {
		case "inet":
			r.IPv4++
		case "inet6":
			r.IPv6++
		}
	}
	return rows
}

func writeSummary(w io.Writer, rows []summaryRow) error {
	t := cli.NewTable("PROTO", ">TOTAL", ">IPV4", ">IPV6", "STATES").Narrow()
	for _, r := range rows {
		var states []string
		for name, n := range r.States {
			states = append(states, fmt.Sprintf("%s:%d", name, n))
		}
		slices.Sort(states)
		t.Row(string(r.Proto), fmt.Sprint(r.Total), fmt.Sprint(r.IPv4), fmt.Sprint(r.IPv6), strings.Join(states, " "))
	}
	return t.Write(w)
}
