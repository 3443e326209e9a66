// SPDX-License-Identifier: Apache-2.0

// Package explain contains the verb explain.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli/limitsreport"
	"github.com/lklrun/lklrun/internal/diag/explain"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockfilter"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Limits of --for.
const (
	forLeast = 200 * time.Millisecond
	forMost  = time.Hour
	forUsual = 2 * time.Second
	forUDP   = 6 * time.Second // without --for, while a program waits for an answer over UDP
)

// sinceStart is the value of --since.
const sinceStart = "start"

// options are the flags and the filter.
type options struct {
	process string
	lasts   time.Duration
	most    time.Duration
	since   string

	filter *sockfilter.Filter
}

// Command returns the verb explain.
func Command(c *verb.Call) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "explain [-p PROCESS] [--for TIME | --since start] [FILTER]",
		Short: "explain what limits a connection, or the whole run",
		Long: `explain says what limits the speed of TCP and MPTCP connections: the program, a
buffer, a window, packet loss, the rate of a path, the CPU or the gateway. It
observes the run for some time, and prints the share of each limit, the evidence
and what to change. It also names the programs that wait for a name server, or
for another answer over UDP. Without --for, it observes such a program for up to
6 seconds.

"lklctl help filters" describes FILTER. Without it, the connection with the most
data comes first.`,
		Example: `  lklctl explain
  lklctl explain -p curl --for 10s
  lklctl explain dst 192.0.2.7:443
  lklctl explain -o json | jq '.connections[0].limits'`,
		Args: func(cmd *cobra.Command, args []string) error { return o.parse(cmd, args) },
		ValidArgsFunction: c.Complete(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, toComplete string) []string {
			return append([]string{"dst", "src", "dport", "sport", "dev", "state"}, verb.LinkNames(ctx, info, conn, toComplete)...)
		}),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.QueryWithin(max(o.lasts, forUDP)+verb.QueryLimit, func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			return run(ctx, c, info, conn, o)
		})(cmd, args)
	}
	f := cmd.Flags()
	c.Flags(f, true)
	c.EmptyFlag(f)
	f.StringVarP(&o.process, "process", "p", "", "explain only connections of the `PROCESS`: a name or a process ID")
	f.DurationVar(&o.lasts, "for", forUsual, "observe the run for this `TIME`")
	f.StringVar(&o.since, "since", "", "use what lklrun --explain has recorded since the `start`")
	verb.Must(cmd.RegisterFlagCompletionFunc("since", cobra.FixedCompletions([]cobra.Completion{sinceStart}, cobra.ShellCompDirectiveNoFileComp)))
	verb.Document(cmd, explain.Report{})
	return cmd
}

// parse checks the flags and parses the filter.
func (o *options) parse(cmd *cobra.Command, args []string) (err error) {
	switch {
	case o.since != "" && o.since != sinceStart:
		return exit.Usagef("--since %q; expected start", o.since)
	case o.since != "" && cmd.Flags().Changed("for"):
		return exit.Usagef("--since and --for conflict; choose one")
	case o.lasts < forLeast || o.lasts > forMost:
		return exit.Usagef("--for %v; expected a time from %v to %v, such as 10s", o.lasts, forLeast, forMost)
	}
	if o.most = o.lasts; !cmd.Flags().Changed("for") {
		o.most = max(o.lasts, forUDP)
	}
	if o.filter, err = sockfilter.Parse(args); err != nil {
		return exit.Usagef("filter: %v", err)
	}
	return nil
}

func run(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *options) error {
	r, err := report(ctx, c, info, conn, o)
	if err != nil {
		return err
	}
	if !o.filter.Empty() || o.process != "" {
		r.Connections = slices.DeleteFunc(r.Connections, func(k explain.Connection) bool { return !o.wants(&k) })
		r.Unseen = 0
		r.Describe(true)
	}
	none := "TCP connection, and no program waits for an answer over UDP"
	switch {
	case !o.filter.Empty() || o.process != "":
		none = "matching TCP connection"
	case o.since != "":
		none = "TCP connection"
	}
	n := len(r.Connections) + len(r.Findings) + int(r.Unseen)
	return c.Show(r, n, c.Empty("instance %q has no %s", info.Name, none), func(w io.Writer) error { return limitsreport.Write(w, r) })
}

// report observes the run, or asks lklrun for what it has recorded.
func report(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *options) (*explain.Report, error) {
	if info.Engine == instance.EngineVirtual {
		return nil, fmt.Errorf("instance %q: time stands still, so nothing can be observed; \"lklctl netstat -ti\" shows what the kernel has measured", info.Name)
	}
	if o.since == "" {
		if err := c.Fetch(ctx, info, instance.ResolvFile); err != nil {
			return nil, err
		}
		return explain.Observe(ctx, conn, info, o.lasts, o.most)
	}
	r, err := rpc.Do(ctx, conn, explain.Recorded, struct{}{}, nil)
	if refused := (*rpc.Error)(nil); errors.As(err, &refused) && refused.Usage {
		return nil, exit.Usagef("--since start: instance %q: %w", info.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("instance %q: %w", info.Name, err)
	}
	return &r, explain.WhyNot(ctx, conn, info, &r)
}

// wants reports whether a connection is selected.
func (o *options) wants(k *explain.Connection) bool {
	if o.process != "" && o.process != k.Process && o.process != fmt.Sprint(k.PID) {
		return false
	}
	return o.filter.Match(k.Socket())
}
