// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/suggest"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/launch"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
	"github.com/lklrun/lklrun/pkg/lab"
)

const labHelp = `lab joins several stacks by virtual wires, without root and without changes to
the host. "lab -- CLIENT" starts two of them, client and server, runs CLIENT on
the first one, and ends both with its status. The client reaches the other node
by the name server.

For iperf3, iperf and netperf, the server and the arguments of the client are
known. For other clients, --server names the program of the server.

Larger labs are described in a file: see "lklrun help labs".`

const labExamples = `  lklrun lab --paths 2 --delay 20ms --rate 100mbit --loss 1% -- iperf3
  lklrun lab --paths 2 --require mptcp -- iperf3   # prove it: connections, bytes
  lklrun lab --chain 3 -- ping -c 3 server
  lklrun lab --server 'python3 -m http.server 80' -- curl http://server/
  lklrun lab run test.json
  lklrun lab up two-paths.json && lklrun lab exec client -- bash`

// shapeFlags are the flags for a lab without a file.
type shapeFlags struct {
	paths, routers     uint
	wire               lab.Wire
	seed               uint
	stack, serverStack string
	mem                string
	sysctls            []string
	server             string
}

func (s *shapeFlags) add(f *pflag.FlagSet) {
	f.UintVar(&s.paths, "paths", 1, "connect client and server by `N` paths")
	f.UintVar(&s.routers, "chain", 0, "put `N` routers on each path")
	f.StringVar(&s.wire.Delay, "delay", "", "delay packets on each wire by this `TIME` in each direction, such as 20ms")
	f.StringVar(&s.wire.Jitter, "jitter", "", "vary the delay by up to this `TIME`")
	f.StringVar(&s.wire.Rate, "rate", "", "limit each wire to this `RATE` in each direction, such as 100mbit")
	f.StringVar(&s.wire.Loss, "loss", "", "lose packets on each wire with this `PROBABILITY`, such as 1%")
	f.UintVar(&s.seed, "seed", 0, "repeat the random decisions of an earlier lab with the same `NUMBER`")
	f.StringVar(&s.stack, "stack", "", "use this stack, by `NAME` or folder (default mptcp)")
	f.StringVar(&s.serverStack, "server-stack", "", "use another stack for the server, by `NAME` or folder")
	f.StringVar(&s.mem, "mem", "", "give each node this `SIZE` of memory (default: the stack's)")
	f.StringArrayVar(&s.sysctls, "sysctl", nil, "change a setting of all nodes' kernels, `NAME=VALUE`; repeatable")
	f.StringVar(&s.server, "server", "", "run this `COMMAND` on the server, as a line for sh")
}

// shapeNames are the flags of shapeFlags.
var shapeNames = []string{"paths", "chain", "delay", "jitter", "rate", "loss", "seed", "stack", "server-stack", "mem", "sysctl", "server"}

// topology returns the lab that the flags describe.
func (s *shapeFlags) topology(name string, client []string) (*lab.Topology, []string, error) {
	shape := lab.Shape{Paths: int(s.paths), Routers: int(s.routers), Wire: s.wire, Stack: s.stack, ServerStack: s.serverStack}
	shape.Wire.Seed = int(s.seed)
	switch {
	case s.paths < 1 || s.paths > lab.MaxPaths:
		return nil, nil, cli.Usagef("--paths %d; expected a number from 1 to %d", s.paths, lab.MaxPaths)
	case s.routers > lab.MaxRouters || 2+s.paths*s.routers > lab.MaxNodes:
		return nil, nil, cli.Usagef("--chain %d: the lab would have %d nodes; the limit is %d", s.routers, 2+s.paths*s.routers, lab.MaxNodes)
	}
	if s.server != "" {
		shape.Server = lab.Command{"sh", "-c", s.server}
	} else {
		shape.Server, client = knownPair(client)
	}
	t := shape.Topology()
	t.Name, t.Mem = name, s.mem
	for _, w := range s.sysctls {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil, nil, cli.Usagef("--sysctl %q; expected NAME=VALUE, such as net.ipv4.tcp_congestion_control=bbr", w)
		}
		if t.Sysctl == nil {
			t.Sysctl = map[string]string{}
		}
		t.Sysctl[key] = value
	}
	if _, err := t.Plan(); err != nil {
		return nil, nil, &cli.UsageError{Err: flagError(err)}
	}
	return t, client, nil
}

// flagError replaces the path in an error about a topology that flags describe.
func flagError(err error) error {
	var te *lab.TopologyError
	if !errors.As(err, &te) {
		return err
	}
	for _, key := range []string{"delay", "jitter", "rate", "loss", "seed", "mem"} {
		if te.Path == key || strings.HasPrefix(te.Path, "wires.") && strings.HasSuffix(te.Path, "."+key) {
			return fmt.Errorf("--%s: %w", key, te.Err)
		}
	}
	if te.Path == "name" {
		return fmt.Errorf("--name: %w", te.Err)
	}
	if name, ok := strings.CutPrefix(te.Path, "sysctl."); ok {
		return fmt.Errorf("--sysctl %s: %w", name, te.Err)
	}
	return err
}

// pairs lists the servers of known clients, and the client's option for the
// server.
var pairs = map[string]struct {
	server  lab.Command
	options []string
}{
	"iperf3":  {lab.Command{"iperf3", "-s"}, []string{"-c", "--client"}},
	"iperf":   {lab.Command{"iperf", "-s"}, []string{"-c", "--client"}},
	"netperf": {lab.Command{"netserver", "-D"}, []string{"-H"}},
}

// knownPair returns the server of a known client, and the client with the name of
// the server.
func knownPair(client []string) (lab.Command, []string) {
	if len(client) == 0 {
		return nil, client
	}
	p, ok := pairs[filepath.Base(client[0])]
	if !ok {
		return nil, client
	}
	given := func(arg string) bool {
		return slices.ContainsFunc(p.options, func(o string) bool { return strings.HasPrefix(arg, o) })
	}
	if !slices.ContainsFunc(client[1:], given) {
		client = slices.Concat(client[:1], []string{p.options[0], "server"}, client[1:])
	}
	return p.server, client
}

// labRunner contains the flags of the verb lab.
type labRunner struct {
	shape   shapeFlags
	name    string
	require string
	end     *exit.End
	explain bool
	schema  bool
	output  cli.Output
}

func labCommand(end *exit.End) *cobra.Command {
	r := &labRunner{end: end, output: cli.OutputTable}
	cmd := &cobra.Command{
		Use:     "lab [FLAG]... -- CLIENT [ARG]...",
		Short:   "join several stacks by virtual wires",
		Long:    labHelp,
		Example: labExamples,

		Args:                  cobra.ArbitraryArgs, // the arguments of a command, not names of verbs
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeProgram,
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	r.shape.add(f)
	f.StringVar(&r.name, "name", "", "call the lab `NAME`; its nodes are NAME.client and NAME.server (default: lab)")
	f.StringVar(&r.require, "require", "", "print at the end how the client was connected; exit with 123 unless it used the stack, or only MPTCP: `stack|mptcp`")
	f.BoolVar(&r.explain, "explain", false, "print the nodes, addresses, routes and wires without starting them")
	f.BoolVar(&r.schema, "schema", false, "print the JSON Schema of topology files, for editors")
	f.VarP(&r.output, "output", "o", "with --explain: print text or JSON")
	for _, name := range []string{"stack", "server-stack"} {
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, completeStack))
	}
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("sysctl", completeSysctl))
	cmd.AddCommand(labUpCommand(), labRunCommand(), labReplayCommand(), labExecCommand(end), labSetCommand(), labStatusCommand(), labDownCommand())
	return cmd
}

func (r *labRunner) run(cmd *cobra.Command, args []string) error {
	if r.schema {
		_, err := os.Stdout.Write(lab.Schema())
		return err
	}
	if err := checkFlags(cmd.Flags()); err != nil {
		return err
	}
	if r.require != "" {
		if _, err := config.ParseRequire(r.require); err != nil {
			return cli.Usagef("--require %w", err)
		}
	}
	if len(args) == 0 && !r.explain {
		return cli.Usagef("no client to run; expected lklrun lab [FLAG]... -- CLIENT [ARG]..., or lab run FILE")
	}
	if len(args) > 0 && cmd.ArgsLenAtDash() < 0 {
		if _, err := exec.LookPath(args[0]); err != nil {
			return cli.Usagef("%q is neither a verb of lab nor a program; %s", args[0], suggest.Suggest(args[0], verbsOf(cmd), "see lklrun lab --help"))
		}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	t, client, err := r.shape.topology(r.name, args)
	if err != nil {
		return err
	}
	if r.explain {
		return explainLab(t, r.output)
	}
	if err := r.chooseName(ctx, t); err != nil {
		return err
	}
	l, err := startLab(ctx, t, lab.Options{})
	if err != nil {
		return err
	}
	*r.end, err = runClient(cmd.Context(), l, "client", client)
	if err == nil && r.require != "" {
		err = r.prove(context.WithoutCancel(ctx), l)
	}
	return errors.Join(err, l.Down(context.WithoutCancel(ctx)))
}

// prove prints how the client's connections were made and what each wire carried. If the
// client succeeded without meeting --require, the lab ends with status 123.
func (r *labRunner) prove(ctx context.Context, l *lab.Lab) error {
	client := l.Plan.Nodes[slices.IndexFunc(l.Plan.Nodes, func(n lab.PlannedNode) bool { return n.Name == "client" })]
	counters, err := l.Counters(ctx, client.Name)
	if err != nil {
		return err
	}
	info, err := instance.Place{}.Open(client.Instance)
	if err != nil {
		return err
	}
	conn, err := stackconn.Dial(ctx, info.Socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	own, err := conn.Stats(ctx)
	if err != nil {
		return err
	}
	var stats []stackconn.Stat
	for name, value := range counters {
		if strings.HasPrefix(name, "MPTcpExt") {
			stats = append(stats, stackconn.Stat{Name: name, Value: value})
		}
	}
	a := account.NewFinal(append(stats, own...))
	line := a.Connections()
	for _, i := range client.Interfaces {
		line += fmt.Sprintf("; wire %s: %s sent, %s received", i.Wire,
			text.Scaled(float64(counters[i.Name+".tx_bytes"]), "B"), text.Scaled(float64(counters[i.Name+".rx_bytes"]), "B"))
	}
	cli.Note(os.Stderr, self, "%s", line)
	if unmet := a.Unmet(r.require); unmet != "" && *r.end == (exit.End{}) {
		cli.Note(os.Stderr, self, "--require %s: %s", r.require, unmet)
		r.end.Status = launch.ExitUnmet
	}
	return nil
}

// verbsOf returns the names of a command's verbs.
func verbsOf(cmd *cobra.Command) (names []string) {
	for _, v := range cmd.Commands() {
		names = append(names, v.Name())
	}
	return names
}

// chooseName gives the lab a name that no running lab has.
func (r *labRunner) chooseName(ctx context.Context, t *lab.Topology) (err error) {
	if r.name != "" {
		return notRunning(ctx, r.name)
	}
	t.Name, err = freeName(ctx)
	return err
}

// explainLab prints the plan of a lab.
func explainLab(t *lab.Topology, output cli.Output) error {
	p, err := t.Plan()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	if output == cli.OutputJSON {
		return cli.WriteJSON(os.Stdout, p)
	}
	return p.Write(os.Stdout)
}

// freeName returns lab, or lab2 and so on if a lab has this name.
func freeName(ctx context.Context) (string, error) {
	running, err := lab.All(ctx, nil)
	if err != nil {
		return "", err
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(running, func(l *lab.Lab) bool { return l.Plan.Name == name })
	}
	name := "lab"
	for n := 2; taken(name); n++ {
		name = fmt.Sprintf("lab%d", n)
	}
	return name, nil
}

// startLab starts a lab, with a progress bar on a terminal.
func startLab(ctx context.Context, t *lab.Topology, o lab.Options) (*lab.Lab, error) {
	if term.IsTerminal(int(os.Stderr.Fd())) && len(t.Nodes) > 2 && o.Progress == nil {
		bar := progressbar.NewOptions(len(t.Nodes), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowCount(), progressbar.OptionSetDescription("starting nodes"))
		defer func() { _ = bar.Finish() }() // only a progress display
		o.Progress = func(up, _ int) { _ = bar.Set(up) }
	}
	l, err := lab.Up(ctx, t, &o)
	var wrong *lab.TopologyError
	switch {
	case errors.As(err, &wrong):
		return nil, &cli.UsageError{Err: err}
	case err != nil && ctx.Err() != nil:
		return nil, errors.New("interrupted before the lab was up")
	case err != nil:
		return nil, errRun{err}
	}
	return l, nil
}

// runClient runs a program on a node with the standard streams of this process,
// and returns how it ended. The program receives the signals of the terminal, so
// this process ignores them meanwhile.
func runClient(ctx context.Context, l *lab.Lab, node string, args []string) (exit.End, error) {
	terminal := make(chan os.Signal, 1)
	signal.Notify(terminal, os.Interrupt, syscall.SIGQUIT)
	defer signal.Stop(terminal)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cmd := l.Command(ctx, node, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		return exit.End{}, err
	}
	return exit.FromStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}
