// SPDX-License-Identifier: Apache-2.0

// Package drops contains the verbs drops and resets.
package drops

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockfilter"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// interval is the time between two readings of --watch. The kernel keeps the last 1024
// records, so none is missing below 5,000 drops per second.
const interval = 200 * time.Millisecond

// options are the flags and the filter of both verbs.
type options struct {
	file    string
	kinds   []string
	plural  string // noun of the messages
	process string
	watch   bool
	summary bool
	again   bool // retransmissions instead of drops

	filter *sockfilter.Filter
}

// Drops returns the verb drops.
func Drops(c *verb.Call) *cobra.Command {
	o := &options{file: drops.Drops, kinds: []string{drops.Drop}, plural: "dropped packets"}
	cmd := command(c, o)
	cmd.Flags().BoolVarP(&o.again, "retransmits", "r", false, "show what TCP sent again instead, and why")
	cmd.Use = "drops [-r] [-p PROCESS] [-s | -w] [FILTER]"
	cmd.Short = "show packets that were dropped or sent again, and why"
	cmd.Long = `drops lists the last packets that the stack dropped, oldest first: when, the
kernel's reason, the interface, the packet, the process and the function in the
kernel. The reasons are those of include/net/dropreason-core.h.

With -r, it lists what TCP sent again because the peer did not acknowledge it,
with the state of TCP as the reason. One line may be several segments.
"lklctl netstat -ti" counts the retransmitted segments of each connection.

The stack keeps the last 1024 drops and resets, and 1024 retransmissions.
"lklctl help filters" describes FILTER; src and dst are the source and the
destination of the packet.`
	cmd.Example = `  lklctl drops
  lklctl drops -s
  lklctl drops -w dport = :443
  lklctl drops -r -p curl
  lklctl drops -o json | jq -r '.[].reason' | sort | uniq -c`
	return cmd
}

// Resets returns the verb resets.
func Resets(c *verb.Call) *cobra.Command {
	cmd := command(c, &options{file: drops.Drops, kinds: []string{drops.ResetSent, drops.ResetReceived}, plural: "TCP resets"})
	cmd.Use = "resets [-p PROCESS] [-s | -w] [FILTER]"
	cmd.Short = "show TCP resets, and why the stack sent them"
	cmd.Long = `resets lists the last TCP resets that the stack sent or received, oldest first.
For a reset that the stack sent, it shows the reason. A received reset contains
no reason; with MPTCP, "lklctl mptcp" may show it.

The stack keeps the last 1024 drops and resets. "lklctl help filters" describes
FILTER; src and dst are the source and the destination of the reset.`
	cmd.Example = `  lklctl resets
  lklctl resets -w
  lklctl resets -p nginx src 10.0.0.0/8`
	return cmd
}

func command(c *verb.Call, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Args: func(_ *cobra.Command, args []string) (err error) {
			if o.again {
				o.file, o.kinds, o.plural = drops.Retransmits, []string{drops.Retransmit}, "retransmissions"
			}
			if o.summary && o.watch {
				return exit.Usagef("-s and -w conflict; choose one")
			}
			if o.filter, err = sockfilter.Parse(args); err != nil {
				return exit.Usagef("filter: %v", err)
			}
			if o.filter.HasStates() {
				return exit.Usagef("filter: a packet has no state; use src, dst, sport, dport or dev")
			}
			if o.summary && (!o.filter.Empty() || o.process != "") {
				return exit.Usagef("-s counts all events; remove -p and the filter")
			}
			return nil
		},
		ValidArgsFunction: c.Complete(words),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.watch:
				return c.Follow(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
					return watch(ctx, c, info, conn, o)
				})(cmd, args)
			case o.summary:
				return c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
					return summary(ctx, c, info, conn, o)
				})(cmd, args)
			}
			return c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
				return list(ctx, c, info, conn, o)
			})(cmd, args)
		},
	}
	f := cmd.Flags()
	c.Flags(f, true)
	c.EmptyFlag(f)
	f.StringVarP(&o.process, "process", "p", "", "show only events of the `PROCESS`: a name or a process ID")
	f.BoolVarP(&o.watch, "watch", "w", false, "print new events until Ctrl-C or the end of the instance")
	f.BoolVarP(&o.summary, "summary", "s", false, "count the events by reason since the start of the stack")
	verb.Document(cmd, []drops.Record{})
	verb.DocumentWith(cmd, "--summary", []drops.Count{})
	return cmd
}

// words completes the words of a filter, and interfaces.
func words(ctx context.Context, info *instance.Info, conn *stackconn.Conn, toComplete string) []string {
	return append([]string{"dst", "src", "dport", "sport", "dev", "and", "or", "not"}, verb.LinkNames(ctx, info, conn, toComplete)...)
}

// list prints the events that the stack still has.
func list(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *options) error {
	r, err := drops.Open(ctx, conn, o.file)
	if err != nil {
		return err
	}
	defer r.Close()
	all, err := next(ctx, info, conn, r, o)
	if err != nil {
		return err
	}
	none := c.Empty("instance %q has no matching %s", info.Name, o.plural)
	return c.Show(all, len(all), none, func(w io.Writer) error { return write(w, all) })
}

// watch prints events as they occur.
func watch(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *options) error {
	r, err := drops.Open(ctx, conn, o.file)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.Read(ctx); err != nil { // skip the past
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for missed := r.Missed; ; missed = r.Missed {
		select {
		case <-ctx.Done():
			return nil
		case <-conn.Done():
			return conn.Err()
		case <-tick.C:
		}
		events, err := next(ctx, info, conn, r, o)
		if err != nil {
			return err
		}
		if r.Missed > missed {
			cli.Note(c.Stderr, verb.Program, "%d events are missing: the kernel overwrote them before lklctl read them", r.Missed-missed)
		}
		for i := range events {
			if err := line(c, &events[i]); err != nil {
				return err
			}
		}
	}
}

// next reads the new events that are selected by o, with their processes.
func next(ctx context.Context, info *instance.Info, conn *stackconn.Conn, r *drops.Reader, o *options) ([]drops.Record, error) {
	all, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	selected := []drops.Record{}
	for _, rec := range all {
		if slices.Contains(o.kinds, rec.Kind) && o.filter.Match(rec.Socket()) {
			selected = append(selected, rec)
		}
	}
	if err := drops.Attribute(ctx, conn, selected); err != nil {
		return nil, err
	}
	for n := range selected {
		if rec := &selected[n]; rec.Kind == drops.ResetReceived && fromGateway(info, rec.Destination.Addr()) {
			rec.Meaning = gatewayReset
		}
	}
	return slices.DeleteFunc(selected, func(rec drops.Record) bool {
		return o.process != "" && o.process != rec.Process && o.process != fmt.Sprint(rec.PID)
	}), nil
}

// gatewayReset explains a reset from the gateway, which ends the connections of the stack.
const gatewayReset = "the user-mode gateway sent the reset: the destination refused or reset the host's connection, or that connection failed"

// fromGateway reports whether a packet to an address of the stack came from the user-mode
// gateway.
func fromGateway(info *instance.Info, to netip.Addr) bool {
	return slices.ContainsFunc(info.Interfaces, func(i instance.Interface) bool {
		return i.Type == config.DefaultType && slices.ContainsFunc(i.Addr, func(a string) bool { return strings.HasPrefix(a, to.String()+"/") })
	})
}

// summary prints the counts by reason.
func summary(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *options) error {
	counts, err := drops.Counts(ctx, conn)
	if err != nil {
		return err
	}
	counts = slices.DeleteFunc(counts, func(n drops.Count) bool { return !slices.Contains(o.kinds, n.Kind) })
	slices.SortStableFunc(counts, func(a, b drops.Count) int { return int(int64(b.Count) - int64(a.Count)) })
	none := c.Empty("instance %q has no %s", info.Name, o.plural)
	return c.Show(counts, len(counts), none, func(w io.Writer) error {
		t := cli.NewTable(">COUNT", "REASON", "MEANING").Narrow()
		for _, n := range counts {
			t.Row(fmt.Sprint(n.Count), n.Reason, n.Meaning)
		}
		return t.Write(w)
	})
}

// write prints events as a table, and explains their reasons below it.
func write(w io.Writer, all []drops.Record) error {
	head := []string{"TIME", "REASON", "INTERFACE", "PACKET", "PROCESS", "FUNCTION"}
	if all[0].Kind != drops.Drop {
		head = head[:5] // only drops have a function
	}
	t := cli.NewTable(head...).Narrow()
	below := cli.NewTable("MEANING").Bare().Narrow()
	var meanings []string
	for i := range all {
		r := &all[i]
		t.Row([]string{clock(r.Time), r.Reason, r.Interface, r.Packet(), r.Owner(), r.Function}[:len(head)]...)
		if m := r.Reason + ": " + r.Meaning; !slices.Contains(meanings, m) {
			meanings = append(meanings, m)
			below.Row(m)
		}
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return below.Write(w)
}

// line prints one event: as text, or as a JSON document on one line.
func line(c *verb.Call, r *drops.Record) error {
	if c.Output == cli.OutputJSON {
		enc := json.NewEncoder(c.Stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	words := []string{c.Paint.Dim(clock(r.Time)), c.Paint.Red(r.Reason)}
	for _, word := range []string{r.Interface, r.Packet(), r.Owner(), r.Function} {
		if word != "" {
			words = append(words, word)
		}
	}
	_, err := fmt.Fprintf(c.Stdout, "%s: %s\n", strings.Join(words, " "), r.Meaning)
	return err
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000000") }
