// SPDX-License-Identifier: Apache-2.0

// Package plan creates an ordered Plan from the user's configuration and the
// facts about the host. It is the second of three steps: internal/run/preflight
// examines the host before it, and internal/run/launch carries out the plan
// after it.
//
// A Plan is pure data. These rules hold for it:
//
//   - Make is a pure function of the configuration, the stack and the facts. It
//     neither queries nor changes the host.
//   - A plan does not change after Make. Values that only a run knows, such as
//     leases, names that the stack chose and measured times, are kept in
//     internal/run/launch.
//   - JSON carries a plan without loss, so a plan can be printed and passed to
//     another process. A plan contains no descriptors, functions, errors or
//     unexported fields. Data that only one type of interface needs is in
//     Link.Own.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Limits of a run. MaxLinks is the maximum number of MPTCP endpoints in a
// network namespace (MPTCP_PM_ADDR_MAX, net/mptcp/protocol.h).
const (
	MaxLinks     = config.MaxInterfaces
	defaultMTU   = 1500
	resolvHeader = "# by lklrun, for the programs it started\n"
)

// Stack is the stack of the run.
type Stack struct {
	Name    string `json:"name"`
	Kernel  string `json:"kernel,omitempty"`
	Library string `json:"library,omitempty"` // empty: the stack is the host's kernel
	ABI     string `json:"abi"`
	Mem     uint64 `json:"mem,omitempty"`
	Cmdline string `json:"cmdline,omitempty"` // kernel parameters, appended to lklrun's own
	MPTCP   bool   `json:"mptcp"`
}

// Kind is the kind of a step.
type Kind string

// Kinds of steps, in the order in which they occur in a run.
const (
	RunDir    Kind = "run-dir"
	Host      Kind = "host"
	Guard     Kind = "guard" // reserves the ports of addresses shared with the host
	OpenLink  Kind = "link"  // opens the host's end of an interface
	Boot      Kind = "boot"
	Capture   Kind = "capture"
	Configure Kind = "configure"
	Lease     Kind = "lease"
	Release   Kind = "release"
)

// Step is one step of a run, with its undo.
type Step struct {
	Kind Kind   `json:"kind"`
	Link int    `json:"link,omitempty"` // index of the link that the step applies to
	Do   string `json:"do"`
	Undo string `json:"undo,omitempty"`
}

// Plan is a complete description of a run.
type Plan struct {
	Command         []string          `json:"command"`
	Name            string            `json:"name,omitempty"` // instance name; empty: derived from BaseName
	BaseName        string            `json:"base_name"`
	RunRoot         string            `json:"run_root"`
	Stack           Stack             `json:"stack"`
	Require         string            `json:"require,omitempty"`      // one of config's constants
	Engine          string            `json:"engine"`                 // config.EngineSupervise, EnginePreload or EngineTrace
	MissingFeatures []string          `json:"engine_lacks,omitempty"` // features of the host's kernel that the engine does without
	Preload         string            `json:"preload,omitempty"`      // library that the engine preload loads into the program
	Spin            int               `json:"spin_us"`
	Coalesce        int               `json:"coalesce_us,omitempty"`
	Links           []Link            `json:"links"`
	Sysctls         []config.Sysctl   `json:"sysctls,omitempty"`
	HostNets        []config.HostNet  `json:"host_net,omitempty"`
	Allow           []config.Allow    `json:"allow,omitempty"`    // the only destinations; empty: all, unless there is a policy
	Egress          string            `json:"egress,omitempty"`   // config.Run.Egress
	Confined        bool              `json:"confined,omitempty"` // the gateway is the only way to the network
	Detach          bool              `json:"detach,omitempty"`
	WaitAll         bool              `json:"wait_all,omitempty"`    // the run ends when its last process ends
	Resolv          string            `json:"resolv_conf,omitempty"` // content of resolv.conf; empty: keep the host's
	DNSFrom         string            `json:"dns_from,omitempty"`
	Names           Resolver          `json:"names,omitzero"` // the sources of Resolv
	AddHosts        []config.HostName `json:"add_host,omitempty"`
	Hosts           string            `json:"hosts,omitempty"` // content of hosts; empty: keep the host's
	Listen          []int             `json:"listen,omitempty"`
	Publish         []config.Publish  `json:"publish,omitempty"`
	Captures        []config.Capture  `json:"capture,omitempty"`
	TLSKeys         bool              `json:"tls_keys,omitempty"` // programs write their TLS secrets
	RSTGuard        string            `json:"rst_guard,omitempty"`
	PortRange       config.PortRange  `json:"port_range,omitzero"`
	User            *runas.User       `json:"user,omitempty"`     // user of the target; nil: same as this process
	Delay           int               `json:"delay_us,omitempty"` // delay before the command starts, in microseconds
	Mount           []string          `json:"mount,omitempty"`    // file systems to mount in the stack
	Dump            []string          `json:"dump,omitempty"`     // files of the stack to print at the end
	Explain         bool              `json:"explain,omitempty"`  // say at the end what limited the connections
	Notes           []string          `json:"notes,omitempty"`    // printed once at the start
	Hints           []string          `json:"hints,omitempty"`    // the same, if standard error is a terminal
	MissingRights   []string          `json:"lacks,omitempty"`    // rights that this process lacks for the run; only for --dry-run
	Steps           []Step            `json:"steps"`
}

// Make plans a run. The result depends only on the arguments.
func Make(run config.Run, s *stack.Stack, found preflight.Facts) (*Plan, error) {
	if len(run.Command) == 0 {
		return nil, errors.New("no command to run; expected lklrun [FLAG]... -- COMMAND [ARG]...")
	}
	if err := preflight.CheckAllow(run, s); err != nil {
		return nil, err
	}
	p := &Plan{
		Command:  run.Command,
		Name:     run.Name,
		BaseName: instance.BaseName(run.Command[0]),
		RunRoot:  found.RunRoot,
		Stack: Stack{
			Name: s.Name, Kernel: s.Kernel, Library: s.LibraryPath(), ABI: s.ABI,
			Mem: s.MemBytes(), MPTCP: s.MPTCP, Cmdline: run.Cmdline,
		},
		Require:         run.Require,
		HostNets:        run.HostNets,
		Allow:           run.Allows,
		Egress:          run.Egress,
		Confined:        run.Confined() != "",
		AddHosts:        run.AddHosts,
		Engine:          found.Engine,
		MissingFeatures: found.MissingFeatures,
		Preload:         found.Preload,
		Spin:            run.Spin,
		Coalesce:        run.Coalesce,
		Delay:           run.Delay,
		Mount:           run.Mount,
		Dump:            run.Dump,
		Explain:         run.Explain,
		Listen:          run.Listen,
		Publish:         run.Publish,
		Captures:        run.Captures,
		TLSKeys:         run.TLSKeys,
		RSTGuard:        cmp.Or(run.RSTGuard, config.GuardAuto),
		PortRange:       run.PortRange,
		User:            found.User,
		MissingRights:   found.Lacks,
		Detach:          run.Detach,
		// With preload, the kernel ends when the process that contains
		// it ends.
		WaitAll: run.WaitAll || run.Detach && found.Engine != config.EnginePreload,
	}
	if found.Command != nil {
		p.Command = found.Command
	}
	p.Notes = slices.Concat(run.Notes, found.EngineNotes)
	if run.Mem != 0 {
		p.Stack.Mem = run.Mem
	}
	if s.ABI == stack.ABIHost {
		if err := onHost(run); err != nil {
			return nil, err
		}
		p.Stack.Mem = 0
		p.steps()
		return p, nil
	}
	p.Sysctls = Sysctls(run, s)
	if err := p.links(run, found); err != nil {
		return nil, err
	}
	if err := p.checkRequire(); err != nil {
		return nil, err
	}
	if err := p.share(run, found); err != nil {
		return nil, err
	}
	if err := p.captures(); err != nil {
		return nil, err
	}
	p.resolv(run.DNS, found)
	p.Hosts = hosts(run.AddHosts, found.Hosts)
	p.steps()
	return p, nil
}

// onHost returns an error for options that cannot be used with the host's own
// kernel, because lklrun must not configure it.
func onHost(run config.Run) error {
	const is = "the stack is the host's own kernel"
	switch {
	case len(run.Interfaces) > 0:
		return fmt.Errorf("--if %q: %s, with the host's own interfaces; remove --if, or choose another --stack", run.Interfaces[0].String(), is)
	case len(run.Sysctls) > 0:
		return fmt.Errorf("--sysctl %s: %s, whose settings lklrun does not change", run.Sysctls[0].Name, is)
	case len(run.DNS) > 0:
		return fmt.Errorf("--dns %s: %s, with the host's own name servers", run.DNS[0], is)
	case len(run.AddHosts) > 0:
		return fmt.Errorf("--add-host %s: %s, with the host's own names", run.AddHosts[0], is)
	case run.Require == config.RequireMPTCP:
		return fmt.Errorf("--require %s: %s, whose counters include connections of other programs", run.Require, is)
	case len(run.HostNets) > 0:
		return fmt.Errorf("--host-net %s: %s, which already carries all connections", run.HostNets[0], is)
	case len(run.Listen) > 0:
		return fmt.Errorf("--listen %d: %s, which handles its own ports", run.Listen[0], is)
	case len(run.Publish) > 0:
		return fmt.Errorf("--publish %s: %s, whose ports the program opens itself", run.Publish[0], is)
	case len(run.Captures) > 0:
		return fmt.Errorf("--capture %s: %s, whose packets tcpdump can capture", run.Captures[0].File, is)
	case run.TLSKeys:
		return fmt.Errorf("--tls-keys: %s, whose packets tcpdump can capture", is)
	case len(run.Mount) > 0:
		return fmt.Errorf("mount %s: %s, whose files are the host's", run.Mount[0], is)
	case len(run.Dump) > 0:
		return fmt.Errorf("dump %s: %s, whose files are the host's", run.Dump[0], is)
	case run.Cmdline != "":
		return fmt.Errorf("--cmdline: %s, which is already running", is)
	case run.Mem != 0:
		return fmt.Errorf("--mem: %s, which uses the host's memory", is)
	}
	return nil
}

// Sysctls returns the kernel settings of a run: first those that follow from
// its memory, then those of the stack, then those of the user.
func Sysctls(run config.Run, s *stack.Stack) []config.Sysctl {
	if s.ABI == stack.ABIHost {
		return nil
	}
	return lastOfEach(slices.Concat(memSysctls(cmp.Or(run.Mem, s.MemBytes())), s.SortedSysctls(), run.Sysctls))
}

// memSysctls limits TCP's buffers according to the stack's memory, which is
// small compared with a machine's. Linux derives its limits from the memory of
// a machine that also does other work (net/ipv4/tcp.c, tcp_init()). In the
// stack, TCP may use half of the memory in total. Each direction of a socket
// may use up to 1/32 of the memory, but no more than on a big machine.
func memSysctls(mem uint64) []config.Sysctl {
	const page = 4096
	if mem == 0 {
		return nil // the library uses its own default size, which its kernel knows
	}
	total := mem / 2 / page
	most := min(max(mem/32, 1<<20), 6<<20)
	return []config.Sysctl{
		{Name: "net.ipv4.tcp_mem", Value: fmt.Sprintf("%d %d %d", total/2, total*3/4, total)},
		{Name: "net.ipv4.tcp_rmem", Value: fmt.Sprintf("4096 131072 %d", most)},
		{Name: "net.ipv4.tcp_wmem", Value: fmt.Sprintf("4096 16384 %d", min(most, 4<<20))},
	}
}

// lastOfEach removes settings that a later setting of the same name overrides.
func lastOfEach(all []config.Sysctl) []config.Sysctl {
	last := map[string]int{}
	for n, s := range all {
		last[s.Name] = n
	}
	var kept []config.Sysctl
	for n, s := range all {
		if last[s.Name] == n {
			kept = append(kept, s)
		}
	}
	return kept
}

func (p *Plan) links(run config.Run, found preflight.Facts) error {
	if n := len(found.Interfaces); n > MaxLinks {
		return fmt.Errorf("%d interfaces; the limit is %d", n, MaxLinks)
	}
	publish := run.Publish
	for n, i := range found.Interfaces {
		r := link.Request{Interface: &i.Interface, Machine: found.Machine, Others: p.Links, Publish: publish,
			Allow: run.Allows, Egress: run.Egress, EgressLog: run.EgressLog, AllowHosts: allowHosts(run, found.Hosts), Proxy: run.Proxy}
		l, err := p.link(n, &r, i.Found)
		if err != nil {
			return err
		}
		publish = r.Publish
		p.Links, p.Notes, p.Hints = append(p.Links, l), append(p.Notes, r.Notes...), append(p.Hints, r.Hints...)
	}
	if len(publish) > 0 {
		return fmt.Errorf("--publish %s: only --if user has ports of the host; on %s, connect to the stack's own address",
			publish[0], p.Links[0].Name)
	}
	return nil
}

// checkRequire returns an error if no connection to another machine can meet the
// requirement.
func (p *Plan) checkRequire() error {
	others := slices.ContainsFunc(p.Links, func(l Link) bool { return l.Type != config.DefaultType })
	if p.Require != config.RequireMPTCP || others {
		return nil
	}
	return fmt.Errorf("--require %s: TCP ends at lklrun's gateway (--if %s), so no connection can use MPTCP to its peer; use --if tap:NAME,nat or --if raw:DEV", p.Require, config.DefaultType)
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// dir returns the run directory, as far as it is known before the run.
func (p *Plan) dir() string {
	if p.Name == "" {
		return filepath.Join(p.RunRoot, p.BaseName)
	}
	return filepath.Join(p.RunRoot, p.Name)
}

// steps creates the steps in order. Devices of the host are created before the
// stack boots, so that all interfaces exist when it boots.
func (p *Plan) steps() {
	add := func(kind Kind, link int, do, undo string) {
		p.Steps = append(p.Steps, Step{Kind: kind, Link: link, Do: do, Undo: undo})
	}
	orNext := ""
	if p.Name == "" {
		orNext = " (or the same name with the next free number)"
	}
	add(RunDir, 0, "create the run directory "+p.dir()+orNext, "remove it")
	waiting, in := "waiting", ""
	if p.Engine == config.EnginePreload {
		waiting, in = "waiting before its main()", " inside the command"
	}
	add(Host, 0, "start lklhost, with the command "+waiting+" in an empty network namespace", "end both")
	if shared := p.shared(); len(shared) > 0 {
		add(Guard, 0, p.guardStep(shared), "release the ports, delete the rules")
	}
	for n := range p.Links {
		w := link.Describe(&p.Links[n])
		add(OpenLink, n, w.Step, w.Undo)
	}
	if p.Stack.ABI == stack.ABIHost {
		add(Boot, 0, "use the host's own kernel as the stack", "")
	} else {
		mem := "the library's default"
		if p.Stack.Mem != 0 {
			mem = config.FormatMem(p.Stack.Mem)
		}
		add(Boot, 0, fmt.Sprintf("boot %s with %s of memory%s", p.Stack.Library, mem, in), "halt it")
		if len(p.Captures) > 0 {
			add(Capture, 0, "capture packets to "+joined(p.Captures, " and "), "write the remaining packets, close the file")
		}
		add(Configure, 0, "configure "+p.configures(), "")
		p.leaseStep(add)
	}
	until := ""
	if p.WaitAll {
		until = ", until its last process has ended"
	}
	add(Release, 0, "release "+text.Quote(p.Command)+until, "")
}

// configures lists the parts of the configuration that apply inside the stack.
func (p *Plan) configures() string {
	parts := []string{"links, addresses and routes"}
	if p.Stack.MPTCP {
		parts = append(parts, "MPTCP endpoints")
	}
	if n := len(p.Sysctls); n > 0 {
		parts = append(parts, fmt.Sprintf("%d sysctls", n))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
