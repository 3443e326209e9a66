// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/base/suggest"
)

const (
	// startLimit bounds the start of a node.
	startLimit = 60 * time.Second
	// drainLimit bounds the time in which the nodes can deliver their last data
	// to each other. Data for a node that has ended never arrives.
	drainLimit = 200 * time.Millisecond
	// endLimit bounds the end of a node before Down kills it. lklrun ends
	// the programs of the node (5 s) and waits until sent data has arrived.
	endLimit = 20 * time.Second
	// carrierLimit bounds the time until the nodes have found each other.
	carrierLimit = 10 * time.Second
	// serveLimit bounds the time until the program of a server listens.
	serveLimit = 10 * time.Second
	// queryLimit bounds a command of lklctl.
	queryLimit = 30 * time.Second
	// atOnce is the default number of nodes that start at the same time.
	atOnce = 8
	// maxLog is the number of bytes of a node's log that errors can contain.
	maxLog = 64 << 10
	// maxLines is the number of lines of a server's output that its error contains.
	maxLines = 20
)

// Options are the options of Up. The zero value is ready to use.
type Options struct {
	Bin      string              // folder of lklrun and lklctl; empty: that of this program, or PATH
	Logs     string              // folder for the output of each node, NODE.log; empty: keep it in memory
	Parallel int                 // number of nodes that start at the same time; 0: 8
	Progress func(up, total int) // called when a node is up; may be nil
	Detach   bool                // leave the lab running when this process ends
}

// Lab is a running lab.
type Lab struct {
	Plan *Plan

	programs programs
	nodes    []*node // in the order of the plan; nil after Open
	detached bool
}

// node is a node that this process has started.
type node struct {
	plan *PlannedNode
	log  *os.File
	hold io.Closer // end of the pipe that keeps the node alive
	cmd  *exec.Cmd
	done chan struct{} // closed after lklrun has ended
}

// StartError is the error for a node that did not start, or whose server did not.
type StartError struct {
	Node   string
	Stderr string // output of the node
	server string // what is wrong with its server
}

// Error names the node and the reason, with the last output of a server.
func (e *StartError) Error() string {
	if e.server == "" {
		return fmt.Sprintf("node %s: %s", e.Node, reason(e.Stderr, "lklrun ended without a message"))
	}
	text := fmt.Sprintf("node %s: %s", e.Node, e.server)
	output, _, _ := strings.Cut(e.Stderr, ended)
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if lines[0] == "" {
		return text + ", without output"
	}
	return text + "; its output: " + strings.Join(lines[max(0, len(lines)-maxLines):], "\n")
}

// ExitError is the error for a program of lklrun or lklctl that failed.
type ExitError struct {
	Args   []string // with the name of the program
	Status int
	Stderr string
}

// Error returns the message of the program.
func (e *ExitError) Error() string {
	return reason(e.Stderr, fmt.Sprintf("%s: exit status %d", strings.Join(e.Args, " "), e.Status))
}

// reason returns the last line of a program's output without the name of the
// program.
func reason(output, otherwise string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	last := lines[len(lines)-1]
	for _, p := range []string{"lklrun: ", "lklctl: "} {
		last = strings.TrimPrefix(last, p)
	}
	if last == "" {
		return otherwise
	}
	return last
}

// programs are the paths of the programs that a lab uses.
type programs struct{ lklrun, lklctl string }

// find finds the programs in a folder, beside this program, or in PATH.
func find(folder string) (p programs, err error) {
	look := func(name string) (string, error) {
		if folder != "" {
			return exec.LookPath(filepath.Join(folder, name))
		}
		if exe, err := os.Executable(); err == nil {
			if path, err := exec.LookPath(filepath.Join(filepath.Dir(exe), name)); err == nil {
				return path, nil
			}
		}
		return exec.LookPath(name)
	}
	if p.lklrun, err = look("lklrun"); err == nil {
		p.lklctl, err = look("lklctl")
	}
	if err != nil {
		return p, fmt.Errorf("finding the programs lklrun and lklctl: %w; add their folder to PATH, or set Options.Bin", err)
	}
	return p, nil
}

// count numbers the labs of this process that have no name.
var count atomic.Int64

// Up starts a lab and returns when all nodes are up and all servers listen. If a
// node fails, Up stops the others and returns a *StartError. If the topology has
// no name, Up chooses one that no other lab has.
//
// ctx bounds the start. Unless Options.Detach is set, the lab then runs until
// Down, or until this process ends.
func Up(ctx context.Context, t *Topology, o *Options) (*Lab, error) {
	if o == nil {
		o = new(Options)
	}
	if t.Name == "" {
		named := *t
		named.Name = fmt.Sprintf("l%d-%d", os.Getpid(), count.Add(1))
		t = &named
	}
	p, err := t.Plan()
	if err == nil && len(p.Nodes) > MaxNodes {
		err = wrong("nodes", "%d nodes; the limit in real time is %d", len(p.Nodes), MaxNodes)
	}
	if err != nil {
		return nil, err
	}
	l := &Lab{Plan: p, detached: o.Detach}
	if l.programs, err = find(o.Bin); err != nil {
		return nil, err
	}
	if err := l.start(ctx, o); err != nil {
		// The error is the reason. That of Down is a consequence.
		_ = l.Down(context.WithoutCancel(ctx))
		return nil, err
	}
	return l, nil
}

// start starts the nodes, and waits for the servers.
func (l *Lab) start(ctx context.Context, o *Options) error {
	up := 0
	var mu sync.Mutex
	g, starting := errgroup.WithContext(ctx)
	parallel := o.Parallel
	if parallel <= 0 {
		parallel = atOnce
	}
	g.SetLimit(parallel)
	l.nodes = make([]*node, len(l.Plan.Nodes))
	for k := range l.Plan.Nodes {
		n := &node{plan: &l.Plan.Nodes[k], done: make(chan struct{})}
		g.Go(func() error {
			if starting.Err() != nil {
				return context.Cause(starting)
			}
			if err := n.open(o.Logs); err != nil {
				return err
			}
			mu.Lock()
			l.nodes[k] = n
			mu.Unlock()
			if err := l.startNode(starting, n); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if up++; o.Progress != nil {
				o.Progress(up, len(l.nodes))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := l.awaitCarriers(ctx, parallel); err != nil {
		return err
	}
	for k := range l.Plan.Nodes {
		if n := &l.Plan.Nodes[k]; n.Server {
			if err := l.awaitServer(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens the log of a node. Without a folder, it is a file without a name,
// which disappears with this process.
func (n *node) open(folder string) (err error) {
	if folder != "" {
		n.log, err = os.Create(filepath.Join(folder, n.plan.Name+".log"))
	} else {
		n.log, err = unnamed()
	}
	if err != nil {
		return fmt.Errorf("the log of node %s: %w", n.plan.Name, err)
	}
	return nil
}

// unnamed opens a temporary file without a name.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "lklrun-lab-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// text returns the last part of a node's log.
func (n *node) text() string { return tail(n.log) }

// tail returns the last part of a file.
func tail(f *os.File) string {
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-maxLog), maxLog)) // an empty text is possible
	return string(b)
}

// script is what each node runs. It starts the node's own program in
// the background, so that the node remains when the program ends. In the
// foreground, it reports that the node is up, and ends at the end of its standard
// input: when Down closes the pipe, or when the process that has called Up ends.
const (
	script = program.NodeMark + `[ $# = 0 ] || { { "$@"; echo "` + ended + `$?"; } </dev/null >&2 & }
`
	translate = `printf %s "$1" | nft -f - || exit; shift
`
	ended      = "lab: the program ended with status "
	foreground = script + `echo up
exec cat`
	background = script + `exec sleep infinity`
)

// args returns the arguments of lklrun for a node.
func (n *PlannedNode) args(line string) []string {
	args := []string{"--", "sh", "-c", line, "sh"}
	if n.NAT != "" {
		args = []string{"--", "sh", "-c", translate + line, "sh", n.NAT}
	}
	return slices.Concat(n.Flags, args, n.Run)
}

// environ returns the environment without the settings of lklrun. The topology
// contains all settings of a node.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "LKLRUN_") && !slices.Contains(kept, name)
	})
}

// kept are the variables of lklrun that are not settings.
var kept = []string{"LKLRUN_STACKS", "LKLRUN_BIN", "LKLRUN_RUN_DIR"}

// startNode starts a node and waits until it is up.
func (l *Lab) startNode(ctx context.Context, n *node) error {
	if l.detached {
		close(n.done)
		return l.detachNode(ctx, n)
	}
	in, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("node %s: %w", n.plan.Name, err)
	}
	defer in.Close()
	out, up, err := os.Pipe()
	if err != nil {
		hold.Close()
		return fmt.Errorf("node %s: %w", n.plan.Name, err)
	}
	n.cmd = &exec.Cmd{
		Path: l.programs.lklrun, Args: append([]string{"lklrun"}, n.plan.args(foreground)...), Env: environ(),
		Stdin: in, Stdout: up, Stderr: n.log,
		// Ctrl-C must not end the nodes before the steps that use them.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = n.cmd.Start()
	up.Close()
	if err != nil {
		hold.Close()
		out.Close()
		close(n.done)
		return fmt.Errorf("node %s: %w", n.plan.Name, err)
	}
	n.hold = hold
	reported := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n') // fails at the end of the node
		reported <- line == "up\n"
		_, _ = io.Copy(io.Discard, out) // nothing more is expected
		out.Close()
		_ = n.cmd.Wait() // the log has the reason
		close(n.done)
	}()
	limit, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("node %s: the start took longer than %v", n.plan.Name, startLimit))
	defer cancel()
	select {
	case ok := <-reported:
		if ok {
			return nil
		}
		<-n.done
		return &StartError{Node: n.plan.Name, Stderr: n.text()}
	case <-limit.Done():
		return context.Cause(limit)
	}
}

// detachNode starts a node in the background.
func (l *Lab) detachNode(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	flags := append([]string{"--detach"}, n.plan.args(background)...)
	cmd := exec.CommandContext(ctx, l.programs.lklrun, flags...)
	cmd.Env, cmd.Stderr = environ(), n.log
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &StartError{Node: n.plan.Name, Stderr: n.text()}
	}
	return nil
}

// awaitCarriers waits until each interface has a carrier. Nodes learn of the
// other ends of their wires some milliseconds after they are up.
func (l *Lab) awaitCarriers(ctx context.Context, parallel int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, n := range l.Plan.Nodes {
		g.Go(func() error {
			limit, cancel := context.WithTimeoutCause(ctx, carrierLimit, fmt.Errorf("node %s: an interface has no carrier after %v", n.Name, carrierLimit))
			defer cancel()
			for {
				var paths []struct {
					Carrier bool `json:"carrier"`
				}
				if err := l.JSON(limit, n.Name, &paths, "path"); err != nil {
					return err
				}
				up := 0
				for _, p := range paths {
					if p.Carrier {
						up++
					}
				}
				if up >= len(n.Interfaces) {
					return nil
				}
				if err := pause(limit, 10*time.Millisecond); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// awaitServer waits until the program of a node listens.
func (l *Lab) awaitServer(ctx context.Context, n *PlannedNode) error {
	limit, cancel := context.WithTimeout(ctx, serveLimit)
	defer cancel()
	for {
		var sockets []struct {
			PID int `json:"pid"`
		}
		if err := l.JSON(limit, n.Name, &sockets, "netstat", "-l"); err == nil && len(sockets) > 0 {
			return nil
		} else if err != nil && limit.Err() == nil && !errors.As(err, new(*ExitError)) {
			return err
		}
		log := l.Log(n.Name)
		if _, status, ok := strings.Cut(log, ended); ok {
			return &StartError{n.Name, log, fmt.Sprintf("%s ended with status %s", n.Run, strings.Fields(status)[0])}
		}
		if pause(limit, 30*time.Millisecond) != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &StartError{n.Name, log, fmt.Sprintf("%s does not listen on a port after %v", n.Run, serveLimit)}
		}
	}
}

// node finds a node by name.
func (l *Lab) node(name string) (*PlannedNode, error) {
	var names []string
	for k := range l.Plan.Nodes {
		if n := &l.Plan.Nodes[k]; n.Name == name {
			return n, nil
		} else {
			names = append(names, n.Name)
		}
	}
	return nil, fmt.Errorf("lab %s has no node %q; %s", l.Plan.Name, name, suggest.Suggest(name, names, "it has "+strings.Join(names, ", ")))
}

// Log returns the last output of a node and of its program.
func (l *Lab) Log(name string) string {
	for _, n := range l.nodes {
		if n != nil && n.plan.Name == name && !l.detached {
			return n.text()
		}
	}
	if n, err := l.node(name); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), queryLimit)
		defer cancel()
		out, _ := run(ctx, l.programs.lklctl, "logs", n.Instance) // without output, there is none to report
		return string(out)
	}
	return ""
}

// Command returns a command that runs a program on a node, as exec.CommandContext
// does. It has the directory and the environment of this process, unless they are
// changed. When ctx is done, the program receives SIGTERM, and SIGKILL 5 s later.
func (l *Lab) Command(ctx context.Context, nodeName string, command ...string) *exec.Cmd {
	n, err := l.node(nodeName)
	if err == nil && len(command) == 0 {
		err = errors.New("no command to run")
	}
	if err != nil {
		cmd := exec.CommandContext(ctx, l.programs.lklctl)
		cmd.Err = err
		return cmd
	}
	cmd := exec.CommandContext(ctx, l.programs.lklctl, append([]string{"exec", "-n", n.Instance, "--"}, command...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// JSON runs a verb of lklctl on a node and decodes its JSON, for example the
// verbs mptcp, account, counters or netstat. If the verb fails, the error is an
// *ExitError.
func (l *Lab) JSON(ctx context.Context, nodeName string, v any, verb ...string) error {
	n, err := l.node(nodeName)
	if err != nil {
		return err
	}
	args := append(slices.Clone(verb[:1]), "--name", n.Instance, "-o", "json")
	out, err := run(ctx, l.programs.lklctl, append(args, verb[1:]...)...)
	if err != nil {
		return err
	}
	return decode(out, v, "lklctl "+strings.Join(verb, " "))
}

// Counters returns the counters of a node's kernel by name, such as
// TcpRetransSegs.
func (l *Lab) Counters(ctx context.Context, nodeName string) (map[string]int64, error) {
	counters := map[string]int64{}
	return counters, l.JSON(ctx, nodeName, &counters, "counters")
}

// Set changes a wire, in the words of lklctl path: "down" cuts it, "up" brings it
// back, "loss 5%" adds loss. Each end changes the packets that it receives.
func (l *Lab) Set(ctx context.Context, wire, change string) error {
	var names []string
	for _, w := range l.Plan.Wires {
		if w.Name == wire {
			return l.setEnds(ctx, w.Ends, strings.Fields(change))
		}
		names = append(names, w.Name)
	}
	return fmt.Errorf("lab %s has no wire %q; %s", l.Plan.Name, wire, suggest.Suggest(wire, names, "it has "+strings.Join(names, ", ")))
}

func (l *Lab) setEnds(ctx context.Context, ends []WireEnd, words []string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range ends {
		n, err := l.node(e.Node)
		if err != nil {
			return err
		}
		args := []string{"path", "-n", n.Instance}
		if len(words) > 0 && !slices.Contains([]string{"down", "up", "clear"}, words[0]) {
			args = append(args, "--direction", "in")
		}
		g.Go(func() error {
			_, err := run(ctx, l.programs.lklctl, append(append(args, e.Interface), words...)...)
			return err
		})
	}
	return g.Wait()
}

// run runs a program and returns its output.
func run(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &stderr, environ()
	err := cmd.Run()
	switch exit := (*exec.ExitError)(nil); {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(path), strings.Join(args, " "), context.Cause(ctx))
	case errors.As(err, &exit):
		return nil, &ExitError{Args: append([]string{filepath.Base(path)}, args...), Status: exit.ExitCode(), Stderr: stderr.String()}
	}
	return nil, err
}

// Down ends all nodes and returns when they are gone. If ctx is done or a node
// takes too long, Down kills it.
func (l *Lab) Down(ctx context.Context) error {
	if l.detached {
		return l.stop(ctx)
	}
	for _, n := range l.nodes {
		if n != nil && n.hold != nil {
			n.hold.Close()
		}
	}
	limit, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	drain := time.AfterFunc(drainLimit, func() {
		for _, n := range l.nodes {
			if n != nil && n.cmd != nil {
				_ = n.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
			}
		}
	})
	defer drain.Stop()
	var killed []string
	for _, n := range l.nodes {
		if n == nil || n.cmd == nil {
			continue
		}
		select {
		case <-n.done:
		case <-limit.Done():
			// lklhost ends without lklrun, and undoes the changes.
			_ = n.cmd.Process.Kill() // fails if it has ended
			killed = append(killed, n.plan.Name)
			<-n.done
		}
	}
	for _, n := range l.nodes {
		if n != nil {
			n.log.Close()
		}
	}
	if len(killed) > 0 {
		return fmt.Errorf("lab %s: killed, because they did not end in time: %s", l.Plan.Name, strings.Join(killed, ", "))
	}
	return nil
}

// stop ends the nodes of a lab in the background.
func (l *Lab) stop(ctx context.Context) error {
	running, err := instances(ctx, l.programs)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(2 * atOnce)
	var mu sync.Mutex
	var errs []error
	for _, n := range l.Plan.Nodes {
		if !slices.ContainsFunc(running, func(i listed) bool { return i.Name == n.Instance && i.Running }) {
			continue
		}
		g.Go(func() error {
			if _, err := run(ctx, l.programs.lklctl, "stop", "-n", n.Instance, "--grace", "2s"); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
			}
			return nil
		})
	}
	_ = g.Wait() // errs has the errors
	if len(errs) == 0 && len(l.Plan.Nodes) > 0 {
		// lklrun keeps records of only a few ended runs. Those of a lab that
		// ended as requested would displace others.
		args := []string{"rm"}
		for _, n := range l.Plan.Nodes {
			args = append(args, n.Instance)
		}
		_, _ = run(ctx, l.programs.lklctl, args...) // a record may be missing
	}
	return errors.Join(errs...)
}
