// SPDX-License-Identifier: Apache-2.0

package link

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
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/impair"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// drilling contains the parsed arguments of the verb path.
type drilling struct {
	direction string
	lasts     time.Duration
	ways      []stacknet.Way
	step      impair.Step
}

// Path returns the verb path.
func Path(c *verb.Call) *cobra.Command {
	var d drilling
	cmd := &cobra.Command{
		Use:   "path [IF [STEP]...]",
		Short: "add delay, loss or a rate limit, or cut a path",
		Long: `path shows or changes the impairments of the stack's interfaces, until the
instance ends. "lklctl help path-steps" lists the steps.`,
		Example: `  lklctl path eth1 delay 40ms loss 1% rate 20mbit
  lklctl path eth1 down --for 10s
  lklctl path eth1 clear`,
		Args: func(_ *cobra.Command, args []string) error { return d.parse(args) },
	}
	show := c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
		return showPaths(ctx, c, info, conn, args)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return c.ChangeWithin(d.lasts+verb.QueryLimit, "tc(8)", func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
				return step(ctx, c, info, conn, d.step, d.lasts, args)
			})(cmd, args)
		}
		return show(cmd, args)
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&d.direction, "direction", "both", "affect packets in this direction, as seen by the stack: `in|out|both`")
	f.DurationVar(&d.lasts, "for", 0, "wait for this `TIME` or Ctrl-C, then undo the step")
	verb.Must(cmd.RegisterFlagCompletionFunc("direction", cobra.FixedCompletions([]cobra.Completion{"in", "out", "both"}, cobra.ShellCompDirectiveNoFileComp)))
	names := c.Complete(pathNames)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return names(cmd, args, toComplete)
		}
		return impair.Keywords, cobra.ShellCompDirectiveNoFileComp
	}
	verb.Document(cmd, []pathRow{})
	return cmd
}

// parse parses the command line.
func (d *drilling) parse(args []string) (err error) {
	if d.ways, err = impair.ParseWays(d.direction); err != nil {
		return exit.Usagef("--direction: %w", err)
	}
	switch {
	case d.lasts < 0 || d.lasts != 0 && len(args) < 2:
		return exit.Usagef("--for: requires a step to undo, and a time such as 10s")
	case len(args) > 1:
		if d.step, err = impair.ParseStep(args[0], d.ways, args[1:]); err != nil {
			return &exit.UsageError{Err: err}
		}
	}
	return nil
}

// step performs one step of a drill.
func step(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, s impair.Step, lasts time.Duration, args []string) error {
	if lasts > 0 {
		return badStep(impair.For(ctx, conn, s, lasts))
	}
	p, err := impair.Open(ctx, conn)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Apply(s); err != nil {
		return badStep(err)
	}
	if c.Output == cli.OutputJSON {
		return showPaths(ctx, c, info, conn, args[:1])
	}
	return nil
}

// badStep marks a step that no interface supports as an error of the command
// line.
func badStep(err error) error {
	if step := (*impair.StepError)(nil); errors.As(err, &step) || errors.Is(err, stacknet.ErrNoTarget) {
		return &exit.UsageError{Err: err}
	}
	return err
}

// pathRow is an interface with the impairments of its packets.
type pathRow struct {
	Name    string         `json:"name"`          // name of the interface
	Carrier bool           `json:"carrier"`       // the interface has carrier, or is administratively down (ip link set down)
	In      *impairmentRow `json:"in,omitempty"`  // impairments of incoming packets; absent: none
	Out     *impairmentRow `json:"out,omitempty"` // impairments of outgoing packets; absent: none
}

// impairmentRow contains the impairments of one direction.
type impairmentRow struct {
	Silent    bool    `json:"silent,omitempty"`            // all packets are lost
	Delay     float64 `json:"delay_us,omitempty"`          // delay of each packet
	Jitter    float64 `json:"jitter_us,omitempty"`         // maximum deviation from the delay, in both directions
	Rate      uint64  `json:"rate_bit_s,omitempty"`        // maximum rate
	Loss      float64 `json:"loss_percent,omitempty"`      // probability that a packet is lost
	Duplicate float64 `json:"duplicate_percent,omitempty"` // probability that a packet is duplicated
	Reorder   float64 `json:"reorder_percent,omitempty"`   // probability that a packet is not delayed, and so overtakes others
	Corrupt   float64 `json:"corrupt_percent,omitempty"`   // probability that one bit of a packet is changed
	Limit     uint32  `json:"limit_packets,omitempty"`     // maximum number of packets that wait because of delay and rate
	Seed      uint64  `json:"seed,omitempty"`              // seed of the random decisions; absent: they differ each time
	Dropped   *uint32 `json:"dropped_packets,omitempty"`   // packets dropped because of loss and limit, without those dropped by silent
}

func showPaths(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, args []string) error {
	p, err := impair.Open(ctx, conn)
	if err != nil {
		return err
	}
	defer p.Close()
	all, err := p.List()
	if err != nil {
		return err
	}
	rows := []pathRow{}
	for _, q := range all {
		if len(args) == 0 || q.Name == args[0] {
			rows = append(rows, pathRow{q.Name, q.Carrier, newImpairmentRow(q.Ways[stacknet.In]), newImpairmentRow(q.Ways[stacknet.Out])})
		}
	}
	if len(args) > 0 && len(rows) == 0 {
		_, err := p.Check(impair.Step{Iface: args[0]})
		return badStep(err)
	}
	return c.Show(rows, len(rows), c.Empty("instance %q: the stack has no interface except lo", info.Name), func(w io.Writer) error {
		t := cli.NewTable("NAME", "CARRIER", "DIRECTION", ">DROPPED", "PACKETS").Narrow()
		for _, r := range rows {
			r.table(t)
		}
		return t.Write(w)
	})
}

func newImpairmentRow(i stacknet.Impairment) *impairmentRow {
	e := i.Netem
	if !i.Drop && e.None() {
		return nil
	}
	percent := func(p float64) float64 { return float64(int64(p*1e8+0.5)) / 1e6 }
	r := &impairmentRow{
		Silent: i.Drop, Delay: float64(e.Delay) / 1e3, Jitter: float64(e.Jitter) / 1e3, Rate: e.Rate,
		Loss: percent(e.Loss), Duplicate: percent(e.Duplicate), Reorder: percent(e.Reorder), Corrupt: percent(e.Corrupt), Seed: e.Seed,
	}
	if !e.None() {
		r.Limit, r.Dropped = e.Limit, &i.Dropped
	}
	return r
}

// table adds one line for both directions, or one for each if they differ.
func (r pathRow) table(t *cli.Table) {
	carrier := map[bool]string{true: "yes", false: "no"}[r.Carrier]
	in, out := r.In.words(), r.Out.words()
	if in == out {
		dropped := ""
		if r.In.dropped() != "" {
			dropped = r.In.dropped() + "+" + r.Out.dropped()
		}
		t.Row(r.Name, carrier, "both", dropped, in)
		return
	}
	t.Row(r.Name, carrier, "in", r.In.dropped(), in)
	t.Row(r.Name, carrier, "out", r.Out.dropped(), out)
}

func (i *impairmentRow) dropped() string {
	if i == nil || i.Dropped == nil {
		return ""
	}
	return fmt.Sprint(*i.Dropped)
}

// words returns the impairments as the words of a step.
func (i *impairmentRow) words() string {
	if i == nil {
		return "pass"
	}
	words := ""
	add := func(name, value string, is bool) {
		if is {
			words += " " + name + value
		}
	}
	add("silent", "", i.Silent)
	duration := func(us float64) string { return " " + time.Duration(us*1e3).String() }
	add("delay", duration(i.Delay), i.Delay > 0)
	add("jitter", duration(i.Jitter), i.Jitter > 0)
	add("rate", " "+text.Scaled(float64(i.Rate), "bit/s"), i.Rate > 0)
	for _, share := range []struct {
		name string
		p    float64
	}{{"loss", i.Loss}, {"duplicate", i.Duplicate}, {"reorder", i.Reorder}, {"corrupt", i.Corrupt}} {
		add(share.name, fmt.Sprintf(" %v%%", share.p), share.p > 0)
	}
	add("seed", fmt.Sprintf(" %d", i.Seed), i.Seed > 0)
	return words[1:]
}

// pathNames returns the interfaces that support drills.
func pathNames(ctx context.Context, info *instance.Info, conn *stackconn.Conn, toComplete string) []string {
	return slices.DeleteFunc(verb.LinkNames(ctx, info, conn, toComplete), func(name string) bool { return name == "lo" })
}
