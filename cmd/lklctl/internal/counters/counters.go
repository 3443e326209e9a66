// SPDX-License-Identifier: Apache-2.0

// Package counters contains the verb counters: the stack's counters.
package counters

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/counters/prom"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// counting contains the flags and the state of the verb counters.
type counting struct {
	*verb.Call
	zeros  bool
	since  bool // show the changes since the previous call
	watch  verb.Watching
	around bool
	listen string
	public bool
	token  string // a file that contains a token

	last counters.Reading // counters of the previous round of --watch
}

// Command returns the verb counters.
func Command(c *verb.Call) *cobra.Command {
	n := &counting{Call: c}
	cmd := &cobra.Command{
		Use:   "counters [-z] [-d] [PATTERN...] [--around -- COMMAND...]",
		Short: "show the counters of a stack",
		Long: `counters shows the counters of a stack, or those that contain PATTERN or match
it as a glob. Tables omit counters that are zero, unless -z or PATTERN is given.`,
		Example: `  lklctl counters MPTcp 'eth*.rx_*'
  lklctl counters Retrans --around -- curl -s -o /dev/null http://server/file
  lklctl counters --listen 9100 --token-file ~/.lklrun-token`,
		ValidArgsFunction: c.Complete(counterNames),
		RunE:              n.run,
	}
	f := cmd.Flags()
	f.StringVarP(&c.Name, "name", "n", c.Name, "select the instance `NAME` (of a pod: NAMESPACE/POD)")
	c.NetnsFlag(f)
	cli.OutputFlags(f, promOutput{&c.Output}, "print a table, JSON, or the text format of Prometheus")
	f.BoolVarP(&n.zeros, "zeros", "z", false, "include counters that are zero or have not changed")
	f.BoolVarP(&n.since, "differences", "d", false, "show the changes since the last -d, or since the start of the stack")
	f.BoolVar(&n.around, "around", false, "run COMMAND on the host, and show the changes in the meantime")
	verb.ListenFlags(f, &n.listen, "", &n.public)
	f.StringVar(&n.token, "token-file", "", "with --listen: read the token of the address from `FILE`")
	n.watch.Flag(f)
	c.EmptyFlag(f)
	verb.Must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"table", "json", "prom"}, cobra.ShellCompDirectiveNoFileComp)))
	verb.Document(cmd, map[string]counters.Value{})
	verb.DocumentWith(cmd, "-d", map[string]counters.Change{})
	verb.DocumentWith(cmd, "--watch", map[string]counters.Change{})
	verb.DocumentWith(cmd, "--around", aroundReport{})
	cmd.AddCommand(explainCommand(c))
	return cmd
}

// run selects the operation.
func (n *counting) run(cmd *cobra.Command, args []string) error {
	patterns, command, err := n.words(cmd, args)
	if err != nil {
		return err
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return exit.Usagef("pattern %q: not a valid glob; expected one such as 'Tcp*Retrans*'", p)
		}
	}
	switch {
	case n.listen != "":
		return n.serve(cmd.Context())
	case n.around:
		return n.runAround(cmd, patterns, command)
	case n.watch.Every > 0:
		return n.Call.Watch(&n.watch, n.round)(cmd, patterns)
	case n.since:
		return n.Query(n.differences)(cmd, patterns)
	}
	return n.Query(n.now)(cmd, patterns)
}

// words separates patterns from a command, and rejects conflicting flags.
func (n *counting) words(cmd *cobra.Command, args []string) (patterns, command []string, err error) {
	usage := func(format string, a ...any) ([]string, []string, error) {
		return nil, nil, exit.Usagef(format+"; see %s --help", append(a, cmd.CommandPath())...)
	}
	dash := cmd.ArgsLenAtDash()
	watch := n.watch.Every > 0
	switch {
	case n.around && (watch || n.since || n.listen != ""), n.listen != "" && (watch || n.since):
		return usage("--around, --watch, -d and --listen conflict; choose one")
	case cmd.Flags().Changed("netns") && (n.since || n.listen != ""):
		return usage("--netns conflicts with -d and --listen")
	case n.listen == "" && (n.public || n.token != ""):
		return usage("--public and --token-file require --listen")
	case n.listen != "" && (len(args) > 0 || n.Name != ""):
		return usage("--listen: serves all counters of all instances; remove -n and PATTERN")
	case cli.OutputProm == n.Output && (watch || n.since || n.around):
		return usage("-o prom: conflicts with --watch, -d and --around; let Prometheus compute differences")
	case !n.around:
		return args, nil, nil
	case dash < 0:
		dash = 0
	}
	if len(args) == dash {
		return usage("--around: no COMMAND given")
	}
	return args[:dash], args[dash:], nil
}

// now shows the present counters.
func (n *counting) now(ctx context.Context, info *instance.Info, conn *stackconn.Conn, patterns []string) error {
	all, err := readCounters(ctx, conn)
	if err != nil {
		return err
	}
	if n.Output == cli.OutputProm {
		connections, err := new(meter).read(ctx, conn, info)
		if err != nil {
			return err
		}
		all = append(all, connections...)
	}
	some := all.Select(patterns)
	if n.Output == cli.OutputProm {
		return prom.Write(n.Stdout, []prom.Instance{{Name: info.Name, Pod: info.Pod, Set: some}})
	}
	object := map[string]counters.Value{}
	t := cli.NewTable("NAME", ">VALUE")
	rows := 0
	for i := range some {
		object[some[i].Name] = some[i].Value
		if !some[i].Value.IsZero() || n.zeros || len(patterns) > 0 {
			t.Row(some[i].Name, some[i].Value.String())
			rows++
		}
	}
	if n.Output == cli.OutputJSON {
		rows = len(some)
	}
	return n.Show(object, rows, n.Nothing("instance %q has no matching counter", info.Name), t.Write)
}

// differences shows the changes since the last call.
func (n *counting) differences(ctx context.Context, info *instance.Info, conn *stackconn.Conn, patterns []string) error {
	history := filepath.Join(info.Files(), instance.CountersFile)
	if err := n.Fetch(ctx, info, instance.CountersFile); err != nil {
		return err
	}
	before, _, err := counters.Load(history)
	if err != nil {
		return err
	}
	now, at, err := readNow(ctx, conn)
	if err != nil {
		return err
	}
	if err := counters.Take(now, at).Store(history); err != nil {
		return err
	}
	if err := n.Keep(ctx, info, history); err != nil {
		return err
	}
	return n.showChanges(before.Since(now.Select(patterns), at), info.Name)
}

// showChanges shows the counters that changed.
func (n *counting) showChanges(all []counters.Named, name string) error {
	object, rows, table := n.changes(all)
	return n.Show(object, rows, n.Empty("instance %q: no matching counter has changed", name), table.Write)
}

func (n *counting) changes(all []counters.Named) (map[string]counters.Change, int, *cli.Table) {
	object := map[string]counters.Change{}
	t := cli.NewTable("NAME", ">CHANGE", ">PER SECOND")
	for _, c := range all {
		if c.Difference != 0 || n.zeros {
			object[c.Name] = c.Change
			t.Row(c.Name, strconv.FormatInt(c.Difference, 10), perSecond(c.PerSecond))
		}
	}
	return object, len(object), t
}

// round performs one round of --watch. It shows values and their growth per second.
// With -d, it shows only the counters that changed since the previous round.
func (n *counting) round(ctx context.Context, info *instance.Info, conn *stackconn.Conn, patterns []string) error {
	now, at, err := readNow(ctx, conn)
	if err != nil {
		return err
	}
	before := n.last
	n.last = counters.Take(now, at)
	if before.Values == nil {
		before = n.last // no changes yet
		before.Time = time.Time{}
	}
	changes := before.Since(now.Select(patterns), at)
	if n.since {
		return n.showChanges(changes, info.Name)
	}
	object := map[string]counters.Change{}
	t := cli.NewTable("NAME", ">VALUE", ">PER SECOND")
	rows := 0
	for _, c := range changes {
		object[c.Name] = c.Change
		if !c.Change.Value.IsZero() || n.zeros || len(patterns) > 0 {
			t.Row(c.Name, c.Change.Value.String(), perSecond(c.PerSecond))
			rows++
		}
	}
	return n.Show(object, rows, n.Nothing("instance %q has no matching counter", info.Name), t.Write)
}

func readNow(ctx context.Context, conn *stackconn.Conn) (counters.Set, time.Time, error) {
	at := time.Now()
	set, err := readCounters(ctx, conn)
	return set, at, err
}

// gatewayLimit is the timeout for reading lklrun's counters.
const gatewayLimit = time.Second

// readCounters reads the stack's counters, and lklrun's counters of user-mode
// gateways. lklrun's counters are missing if lklrun does not answer, because it was
// stopped or is ending.
func readCounters(ctx context.Context, conn *stackconn.Conn) (counters.Set, error) {
	all, err := counters.Read(ctx, conn)
	if err != nil || conn.InNetns() {
		return all, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayLimit)
	defer cancel()
	if counts, err := rpc.Do(ctx, conn, rpc.Gateways, struct{}{}, nil); err == nil {
		all = append(all, counters.Gateways(counts)...)
	}
	return all, nil
}

func reading(ctx context.Context, conn *stackconn.Conn) (counters.Reading, error) {
	set, at, err := readNow(ctx, conn)
	return counters.Take(set, at), err
}

func perSecond(rate *float64) string {
	if rate == nil {
		return ""
	}
	return strconv.FormatFloat(*rate, 'f', 2, 64)
}

// counterNames completes patterns with the names of the stack's counters.
func counterNames(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ string) []string {
	all, err := readCounters(ctx, conn)
	if err != nil {
		return nil
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names
}

// promOutput is the flag -o of a verb that can also write Prometheus' format.
type promOutput struct{ *cli.Output }

// Set parses one of the three formats.
func (o promOutput) Set(s string) error {
	if s == string(cli.OutputProm) {
		*o.Output = cli.OutputProm
		return nil
	}
	if err := o.Output.Set(s); err != nil {
		return fmt.Errorf("expected table, json or prom")
	}
	return nil
}

// Type names the formats in help texts.
func (o promOutput) Type() string { return strings.Join([]string{"table", "json", "prom"}, "|") }
