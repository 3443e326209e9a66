// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/impair"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/virtual"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/capture"
	"github.com/lklrun/lklrun/pkg/config"
)

// VirtualOptions are the options of RunVirtual.
type VirtualOptions struct {
	Bin     string        // folder of lklvirtual; empty: that of this program
	Seed    uint64        // two runs with the same seed are equal
	Folder  string        // folder for the output of each node and step, NODE.log and step-N.log
	Capture bool          // write the packets on all wires to wires.pcapng in the folder
	Until   time.Duration // end the lab at this time, whatever steps are left; 0: no
	StopAt  *Condition    // end the lab when this holds, whatever steps are left; nil: no
	Env     []string      // environment of the programs; nil: that of this process
	Dir     string        // working folder of the programs; empty: that of this process
	Done    func(Result)

	// Hold is called at the stop of StopAt. Until it returns, time stands still, and the nodes are
	// instances for lklctl, which ends ctx when it stops one. nil: the lab ends at once.
	Hold func(ctx context.Context, s *Stop)
}

// VirtualResult is the result of RunVirtual.
type VirtualResult struct {
	Steps  []Result
	Values map[string]string // that the steps and nodes report, by name
	Time   time.Duration     // of the lab, from its start to its end
	Stop   *Stop             // why StopAt ended it; nil: it did not

	Programs []string // paths of the programs that were executed
}

// virtualRun contains the state of RunVirtual.
type virtualRun struct {
	plan    *Plan
	o       *VirtualOptions
	lab     *virtual.Lab
	results []Result
	values  map[string]string // what the steps and nodes report
	later   []*virtualStep
	wires   []impair.State
	t       *Topology
	watches []stopWatch
	stop    *Stop
}

// virtualStep is a step that runs in the background.
type virtualStep struct {
	Result
	step    Step
	program *virtual.Program
	began   time.Duration
}

// RunVirtual runs a lab in virtual time and performs its steps, as Up and Run do. An hour
// of waiting takes no time, and two runs with the same seed and the same programs are
// equal to the nanosecond. The times in the results are virtual ones.
//
// RunVirtual supports a part of what a topology can have: for the rest it returns a
// *TopologyError. If a program needs something that cannot be repeated, the lab ends with
// an error that names it.
func (t *Topology) RunVirtual(ctx context.Context, o VirtualOptions) (result VirtualResult, err error) {
	p, err := t.Plan()
	if err != nil {
		return result, err
	}
	if err := t.CheckVirtual(); err != nil {
		return result, err
	}
	if o.StopAt != nil {
		if err := o.StopAt.checkNode(p); err != nil {
			return result, err
		}
	}
	if o.Folder, err = filepath.Abs(o.Folder); err != nil {
		return result, err
	}
	if o.Env == nil {
		o.Env = environ()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &virtualRun{plan: p, o: &o, t: t, values: map[string]string{}}
	options := virtual.Options{Bin: o.Bin, Seed: o.Seed}
	if err := r.addWires(&options); err != nil {
		return result, err
	}
	for k := range p.Nodes {
		n, err := r.node(t, &p.Nodes[k])
		if err != nil {
			return result, err
		}
		options.Nodes = append(options.Nodes, n)
	}
	if o.Capture {
		done, err := r.capture(&options)
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	if r.lab, err = virtual.Start(ctx, options); err != nil {
		return result, err
	}
	defer r.lab.Close()
	if err = r.watch(); err == nil {
		err = r.run(ctx)
	}
	if errors.Is(err, errUntil) {
		err = nil
	}
	if err == nil {
		err = r.report()
	}
	if err == nil && r.stop != nil && o.Hold != nil {
		err = r.hold(ctx)
	}
	return VirtualResult{r.results, r.values, r.lab.Now(), r.stop, r.lab.Executed()}, err
}

// report adds the counters of the nodes to the results.
func (r *virtualRun) report() error {
	for k := range r.plan.Nodes {
		n := &r.plan.Nodes[k]
		if len(n.Report) == 0 {
			continue
		}
		values := map[string]int64{}
		err := r.lab.Calls(k, func(ctx context.Context, c *stackconn.Conn) error {
			all, err := counters.Read(ctx, c)
			for i := range all {
				values[all[i].Name] = all[i].Value.Int()
			}
			return err
		})
		if err == nil {
			err = n.reportCounters(values, r.values)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckVirtual returns a *TopologyError for what RunVirtual does not support.
func (t *Topology) CheckVirtual() error {
	for _, name := range sorted(t.Wires) {
		w := t.Wires[name]
		known := Wire{Network: w.Network, MTU: w.MTU, Delay: w.Delay, Jitter: w.Jitter, Rate: w.Rate, Limit: w.Limit, Loss: w.Loss, Duplicate: w.Duplicate, Reorder: w.Reorder, Seed: w.Seed}
		if err := supported(join("wires", name), w, known); err != nil {
			return err
		}
	}
	for _, name := range sorted(t.Nodes) {
		n, at := t.Nodes[name], join("nodes", name)
		for k, e := range n.Wires {
			if err := supported(fmt.Sprintf("%s[%d]", join(at, "wires"), k), e, End{Wire: e.Wire, IP: e.IP, Options: pathOptions(e.Options)}); err != nil {
				return err
			}
		}
		known := Node{Stack: n.Stack, Mem: n.Mem, Wires: n.Wires, Router: n.Router, Server: n.Server, Sysctl: n.Sysctl, Run: n.Run, Report: n.Report}
		if err := supported(at, n, known); err != nil {
			return err
		}
	}
	for k, s := range t.Steps {
		known := Step{On: s.On, Run: s.Run, Expect: s.Expect, Timeout: s.Timeout, Retry: s.Retry, Background: s.Background, Report: s.Report, Wire: s.Wire, Set: s.Set, Wait: s.Wait}
		if err := supported(fmt.Sprintf("steps[%d]", k), s, known); err != nil {
			return err
		}
	}
	return nil
}

// pathOptions returns those of the options of an end that describe its path.
func pathOptions(options string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		key, _, _ := strings.Cut(o, "=")
		return !slices.Contains([]string{"backup", "fullmesh", "signal", "table"}, key)
	}), ",")
}

// supported returns an error for the first field of an object that is not as in known, which
// has only the fields that virtual time supports.
func supported(path string, object, known any) error {
	v, k := reflect.ValueOf(object), reflect.ValueOf(known)
	for n := range v.NumField() {
		if !reflect.DeepEqual(v.Field(n).Interface(), k.Field(n).Interface()) {
			key, _, _ := strings.Cut(v.Type().Field(n).Tag.Get("json"), ",")
			return wrong(join(path, key), "is not supported in virtual time")
		}
	}
	return nil
}

func (r *virtualRun) addWires(o *virtual.Options) error {
	for _, w := range r.plan.Wires {
		var words []string
		for _, k := range r.t.Wires[w.Name].keys() {
			words = append(words, k.key, k.value)
		}
		if seed := r.t.Wires[w.Name].Seed; seed != 0 {
			words = append(words, "seed", strconv.Itoa(seed))
		}
		r.wires = append(r.wires, impair.State{Carrier: true})
		if len(words) > 0 {
			if err := r.setWire(len(r.wires)-1, words); err != nil {
				return wrong(join("wires", w.Name), "%w", err)
			}
		}
		o.Wires = append(o.Wires, r.wire(len(r.wires)-1))
	}
	return nil
}

// setWire changes the state of a wire in the words of lklctl path, as Lab.Set does.
func (r *virtualRun) setWire(k int, words []string) error {
	ways := []stacknet.Way{stacknet.In}
	if len(words) > 0 && slices.Contains([]string{"down", "up", "clear"}, words[0]) {
		ways = append(ways, stacknet.Out)
	}
	name := r.plan.Wires[k].Name
	step, err := impair.ParseStep(name, ways, words)
	if err != nil {
		return err
	}
	state, err := step.Change(r.wires[k], cmp.Or(r.t.Wires[name].MTU, 1500))
	if err == nil && !state.Ways[stacknet.Out].Netem.None() {
		err = fmt.Errorf("%s: in virtual time, %q must be a step of its own", name, words[0])
	}
	if err == nil {
		r.wires[k] = state
	}
	return err
}

func (r *virtualRun) wire(k int) virtual.Wire {
	return virtual.Wire{Impairment: r.wires[k].Ways[stacknet.In], Carrier: r.wires[k].Carrier}
}

// node returns the description of a node.
func (r *virtualRun) node(t *Topology, n *PlannedNode) (virtual.Node, error) {
	at := join("nodes", n.Name)
	v := virtual.Node{Name: n.Name, Env: r.o.Env, Dir: r.o.Dir}
	s, err := stack.Find(n.Stack, stack.SearchPath())
	switch {
	case err != nil:
		return v, err
	case s.Library == "":
		return v, wrong(join(at, "stack"), "%s is not supported in virtual time", n.Stack)
	}
	v.Library, v.MPTCP = filepath.Join(s.Dir, s.Library), s.MPTCP
	v.Mem = cmp.Or(t.Nodes[n.Name].Mem, t.Mem, s.Mem, "64M")
	for _, name := range sorted(s.Sysctls) {
		v.Sysctls = append(v.Sysctls, name+"="+s.Sysctls[name])
	}
	if s.MPTCP {
		v.Config.MPTCP = stacknet.MaxMPTCP()
	}
	for k := 1; k < len(n.Flags); k++ {
		switch n.Flags[k-1] {
		case "--sysctl":
			v.Sysctls = append(v.Sysctls, n.Flags[k])
		case "--if":
			spec, err := config.ParseInterface(n.Flags[k])
			if err != nil {
				return v, wrong(join(at, "wires"), "%w", err)
			}
			l := link.New(len(v.Paths), &spec)
			l.MTU, l.Endpoint = cmp.Or(l.MTU, 1500), s.MPTCP
			v.Config.Links, v.Paths = append(v.Config.Links, l.InStack()), append(v.Paths, l.Path())
		}
	}
	for _, i := range n.Interfaces {
		wire := slices.IndexFunc(r.plan.Wires, func(w PlannedWire) bool { return w.Name == i.Wire })
		v.Interfaces = append(v.Interfaces, virtual.Interface{Wire: wire, Addrs: i.Addresses})
	}
	v.Hosts = "127.0.0.1 localhost\n::1 localhost\n"
	for _, h := range n.Names {
		v.Hosts += h.Addr.String() + " " + h.Name + "\n"
	}
	return v, nil
}

// capture opens wires.pcapng. The result closes it.
func (r *virtualRun) capture(o *virtual.Options) (func() error, error) {
	f, err := os.Create(filepath.Join(r.o.Folder, "wires.pcapng"))
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	w, err := capture.NewPcapng(f, "lklrun")
	first := make([]int, len(o.Nodes)) // index of each node's first interface
	for k, n := range o.Nodes {
		for j, i := range n.Interfaces {
			if err != nil {
				break
			}
			var index int
			index, err = w.AddInterface(capture.Interface{
				Name: n.Name + ":eth" + strconv.Itoa(j), LinkType: capture.LinkTypeEthernet, Snaplen: 1 << 18,
				Addrs: i.Addrs, MAC: i.MAC(),
			})
			if j == 0 {
				first[k] = index
			}
		}
	}
	o.Packet = func(node, iface int, at time.Time, frame []byte) error {
		return w.WritePacket(&capture.Packet{Time: at, Interface: first[node] + iface, Length: len(frame), Data: frame, Dir: capture.Out})
	}
	done := func() error { return errors.Join(w.Close(), f.Close()) }
	if err != nil {
		return nil, errors.Join(err, done())
	}
	return done, nil
}

// run starts the programs of the nodes and performs the steps.
func (r *virtualRun) run(ctx context.Context) error {
	for k := range r.plan.Nodes {
		n := &r.plan.Nodes[k]
		if len(n.Run) == 0 {
			continue
		}
		log := filepath.Join(r.o.Folder, n.Name+".log")
		p, err := r.lab.Run(k, log, n.Run)
		if err != nil {
			return err
		}
		if !n.Server {
			continue
		}
		if _, err := r.until(ctx, r.lab.Now()+serveLimit, func() bool { return p.Listens || p.Ended }); err != nil {
			return err
		}
		if !p.Listens || p.Ended {
			text := fmt.Sprintf("%s does not listen on a port after %v", n.Run, serveLimit)
			if p.Ended {
				text = fmt.Sprintf("%s ended with status %d", n.Run, exitStatus(p))
			}
			out, _ := os.ReadFile(log) // an empty text is possible
			return &StartError{n.Name, string(out), text}
		}
	}
	for k, s := range r.plan.Steps {
		v := &virtualStep{Result: Result{Step: k + 1, What: s.String(), Status: -1}, step: s, began: r.lab.Now()}
		if s.Background {
			if err := r.start(v); err != nil {
				return err
			}
			r.later = append(r.later, v)
			continue
		}
		if err := r.perform(ctx, v); err != nil {
			return err
		}
	}
	for _, v := range r.later {
		if err := r.await(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// errUntil ends a lab before its steps are done, as VirtualOptions wants.
var errUntil = errors.New("the lab has reached its end")

// until runs the lab until done, at most until limit. It returns whether it is done.
func (r *virtualRun) until(ctx context.Context, limit time.Duration, done func() bool) (bool, error) {
	end := cmp.Or(r.o.Until, math.MaxInt64)
	for !done() {
		if r.lab.Now() >= end {
			return false, errUntil
		}
		if r.lab.Now() >= limit {
			return false, nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err := r.lab.Round(ctx, min(limit, end)); err != nil {
			return false, err
		}
		if err := r.check(false); err != nil {
			return false, err
		}
	}
	return true, nil
}

// start starts the program of a step.
func (r *virtualRun) start(v *virtualStep) (err error) {
	node := slices.IndexFunc(r.plan.Nodes, func(n PlannedNode) bool { return n.Name == v.step.On })
	v.Output = filepath.Join(r.o.Folder, fmt.Sprintf("step-%d.log", v.Step))
	v.program, err = r.lab.Run(node, v.Output, v.step.Run)
	return err
}

// perform performs a step.
func (r *virtualRun) perform(ctx context.Context, v *virtualStep) error {
	if v.step.Wire != "" {
		k := slices.IndexFunc(r.plan.Wires, func(w PlannedWire) bool { return w.Name == v.step.Wire })
		err := r.setWire(k, strings.Fields(v.step.Set))
		if err == nil {
			err = r.lab.Set(k, r.wire(k))
		}
		return r.finish(v, r.lab.Now(), err)
	}
	if v.step.Wait == "" {
		if err := r.start(v); err != nil {
			return err
		}
		return r.await(ctx, v)
	}
	limit := v.limit()
	end := v.began + parseTime(v.step.Wait)
	if _, err := r.until(ctx, min(end, limit), func() bool { return false }); err != nil {
		return err
	}
	if end > limit {
		return r.finish(v, r.lab.Now(), v.late())
	}
	return r.finish(v, r.lab.Now(), nil)
}

func (v *virtualStep) timeout() time.Duration {
	return parseTime(cmp.Or(v.step.Timeout, defaultTimeout.String()))
}

// limit is the time at which the step must be done.
func (v *virtualStep) limit() time.Duration {
	if v.timeout() > math.MaxInt64-v.began {
		return math.MaxInt64
	}
	return v.began + v.timeout()
}

func (v *virtualStep) late() error { return fmt.Errorf("not done after %v", v.timeout()) }

// await waits for the program of a step.
func (r *virtualRun) await(ctx context.Context, v *virtualStep) error {
	for {
		ended, err := r.until(ctx, v.limit(), func() bool { return v.program.Ended })
		switch {
		case err != nil:
			return err
		case !ended:
			return r.finish(v, r.lab.Now(), v.late())
		}
		if v.Status = exitStatus(v.program); v.Status == v.step.Expect {
			out, err := os.ReadFile(v.Output)
			if err == nil {
				v.Values, err = reported(string(out[max(0, len(out)-maxLog):]), v.step.Report)
			}
			return r.finish(v, v.program.At, err)
		}
		if !v.step.Retry {
			return r.finish(v, v.program.At, fmt.Errorf("exit status %d, expected %d", v.Status, v.step.Expect))
		}
		if _, err := r.until(ctx, min(r.lab.Now()+retryPause, v.limit()), func() bool { return false }); err != nil {
			return err
		}
		if err := r.start(v); err != nil {
			return err
		}
	}
}

// exitStatus returns the exit status of a program as a shell does.
func exitStatus(p *virtual.Program) int {
	if p.Status.Signaled() {
		return 128 + int(p.Status.Signal())
	}
	return unix.WaitStatus(p.Status).ExitStatus()
}

// finish records the result of a step.
func (r *virtualRun) finish(v *virtualStep, at time.Duration, err error) error {
	v.OK, v.Seconds = err == nil, (at - v.began).Seconds()
	maps.Copy(r.values, v.Values)
	if err != nil {
		v.Error = err.Error()
	}
	if r.results = append(r.results, v.Result); r.o.Done != nil {
		r.o.Done(v.Result)
	}
	if err != nil {
		return &StepError{v.Result}
	}
	return nil
}
