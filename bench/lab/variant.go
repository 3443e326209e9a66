// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// A Variant is the implementation that does the networking.
type Variant = string

// The variants: the host's kernel, the library in the measuring process, the two engines
// of lklrun, and the old library that preceded this one.
const (
	Host      Variant = "host"
	HostMPTCP Variant = "host+mptcp"
	Library   Variant = "library"
	Preload   Variant = "preload"
	Supervise Variant = "supervise"
	LKL49     Variant = "lkl-4.9"
)

// A Placement assigns CPUs to the two ends.
type Placement = string

// The placements: left to the scheduler, all on CPU 0, or the measured side on CPU 0 and
// its peer on CPU 1. lklrun and lklhost belong to the measured side.
const (
	Unpinned Placement = "unpinned"
	OneCPU   Placement = "one-cpu"
	TwoCPUs  Placement = "two-cpus"
)

// Placements lists all placements.
var Placements = []Placement{Unpinned, OneCPU, TwoCPUs}

// In returns a command line that runs argv in a namespace ("": the current one), on the
// CPUs of the measured side or of its peer.
func (l *Lab) In(netns string, p Placement, peer bool, argv ...string) []string {
	var line []string
	if netns != "" {
		line = append(line, "ip", "netns", "exec", netns)
	}
	switch {
	case p == TwoCPUs && peer:
		line = append(line, "taskset", "-c", "1")
	case p == OneCPU || p == TwoCPUs:
		line = append(line, "taskset", "-c", "0")
	}
	if !peer {
		line = append(line, "env", placeEnv+"="+p)
	}
	return append(line, argv...)
}

// The congestion control of both ends. CC is the default of Linux and of the stack,
// and is the same for all variants. DefaultCC means the default that each kernel's
// distribution has set. No namespace can change that default.
const (
	CC        = "cubic"
	DefaultCC = "default"
)

// A Run is a variant on a wire.
type Run struct {
	Variant   Variant
	Placement Placement
	Wire      *Wire    // nil: no device and no namespace
	Stack     string   // stack that lklrun uses; "": vanilla
	Flags     []string // additional flags of lklrun
	Library   []string // additional flags of lklbench for a library
	Options   []string // additional flags of lklbench for all variants
	Paths     int      // number of paths used; 0: one
	Prefix    []string // words before the measured command
	Client    string   // the measuring program, from Native; "": lklbench
}

// Has reports whether a variant can be measured here.
func (l *Lab) Has(v Variant) bool {
	if v != LKL49 {
		return true
	}
	_, err := os.Stat(l.liblkl(v))
	return err == nil
}

// Variants returns the variants of a list that can be measured here.
func (l *Lab) Variants(list ...Variant) []Variant {
	var have []Variant
	for _, v := range list {
		if l.Has(v) {
			have = append(have, v)
		}
	}
	return have
}

func (l *Lab) liblkl(v Variant) string {
	stack := "vanilla"
	if v == LKL49 {
		stack = LKL49
	}
	return filepath.Join(l.Root, "bin", "stacks", stack, "liblkl.so")
}

// onHost reports whether the host's kernel does the networking.
func (r Run) onHost() bool { return r.Variant == Host || r.Variant == HostMPTCP }

// Address returns the server's address on path 0, as seen by the variant.
func (w *Wire) Address(r Run) string {
	if r.onHost() {
		return "10.80.1.1"
	}
	return "10.79.1.1"
}

// Address6 is like Address, for IPv6.
func (w *Wire) Address6(r Run) string {
	if r.onHost() {
		return "fd80:1::1"
	}
	return "fd79:1::1"
}

// netns returns the namespace in which the measured command runs.
func (r Run) netns() string {
	switch {
	case r.Wire == nil:
		return ""
	case r.onHost():
		return r.Wire.Client
	}
	return r.Wire.Server
}

// Program returns the command line that runs any program on a variant. The variant
// must not be a library.
func (l *Lab) Program(r Run, argv ...string) []string {
	line := append([]string(nil), r.Prefix...)
	switch r.Variant {
	case HostMPTCP:
		line = append(line, "mptcpize", "run")
	case Supervise, Preload:
		line = append(append(line, l.Bin("lklrun")), r.engine()...)
		line = append(line, "--stack", orVanilla(r.Stack))
		line = append(line, r.Flags...)
		for i := range r.paths() {
			line = append(line, "--if", r.Wire.ifSpec(i))
		}
		line = append(line, "--")
	}
	return l.In(r.netns(), r.Placement, false, append(line, argv...)...)
}

// engine returns lklrun's flags for a variant.
func (r Run) engine() []string {
	return []string{"--engine", r.Variant}
}

func orVanilla(stack string) string {
	if stack == "" {
		return "vanilla"
	}
	return stack
}

func (r Run) paths() int {
	if r.Wire == nil {
		return 0
	}
	return max(r.Paths, 1)
}

// ifSpec returns the value of lklrun's --if for a path.
func (w *Wire) ifSpec(i int) string {
	s := fmt.Sprintf("tap:tap%d,ip=10.79.%d.2/24,ip6=fd79:%d::2/64", i, 1+i, 1+i)
	if w.Options.Offloads != "" {
		s += ",offload=" + w.Options.Offloads
	}
	if w.Options.MTU > 0 {
		s += ",mtu=" + strconv.Itoa(w.Options.MTU)
	}
	return s
}

// Command returns the command line of lklbench for a verb that needs no server.
// Connections use the congestion control CC, unless the options set another.
func (l *Lab) Command(r Run, verb ...string) []string {
	if r.Client == "" {
		r.Options = append([]string{"--cc", CC}, r.Options...)
	}
	if r.Variant != Library && r.Variant != LKL49 {
		if r.Variant == HostMPTCP { // lklbench requests MPTCP itself
			r.Variant, r.Options = Host, append([]string{"--mptcp", "1"}, r.Options...)
		}
		return l.Program(r, append(append([]string{l.client(r)}, r.Options...), verb...)...)
	}
	line := append(append([]string(nil), r.Prefix...), l.client(r), "--lib", l.liblkl(r.Variant))
	for i := range r.paths() {
		line = append(line, "--tap", fmt.Sprintf("tap%d", i), "--ip", fmt.Sprintf("10.79.%d.2/24", 1+i))
		if r.Variant == Library {
			line = append(line, "--ip6", fmt.Sprintf("fd79:%d::2/64", 1+i))
		}
	}
	if r.Wire != nil && r.Wire.Options.Offloads != "" {
		mask := r.Wire.Options.Offloads
		if mask == "off" {
			mask = "0"
		}
		line = append(line, "--offload", mask)
	}
	line = append(append(append(line, r.Library...), r.Options...), verb...)
	return l.In(r.netns(), r.Placement, false, line...)
}

func (l *Lab) client(r Run) string {
	if r.Client == "" {
		return l.Bench()
	}
	return r.Client
}

// Lklbench returns the command line of lklbench for a client verb, followed by the
// server's address and port.
func (l *Lab) Lklbench(r Run, verb string, args ...string) []string {
	port := r.Wire.Port(r.Placement)
	if slices.Contains(r.Options, DefaultCC) {
		port = r.Wire.defaultPort(r.Placement)
	}
	return l.Command(r, append([]string{verb, r.Wire.Address(r), port}, args...)...)
}

// StartLklrun starts a program in the background under an engine, as a run with the
// given name, and waits until its stack runs.
func (l *Lab) StartLklrun(ctx context.Context, r Run, name string, argv ...string) (*Proc, error) {
	r.Flags = append([]string{"--name", name}, r.Flags...)
	p, err := l.Start(ctx, l.Program(r, argv...)...)
	if err != nil {
		return nil, err
	}
	conn, err := l.Dial(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w; %v", err, p.Lines())
	}
	return p, conn.Close()
}

// Dial waits until a run's stack runs, and connects to it.
func (l *Lab) Dial(ctx context.Context, name string) (conn *stackconn.Conn, err error) {
	err = l.Until(ctx, "lklrun "+name, func() (bool, error) {
		c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", name, "ctl.sock"))
		if err != nil {
			return false, err
		}
		if c.Hello().State != ctlproto.CTL_STATE_RUNNING {
			return false, c.Close()
		}
		conn = c
		return true, nil
	})
	return conn, err
}
