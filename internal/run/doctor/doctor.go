// SPDX-License-Identifier: Apache-2.0

// Package doctor examines whether a command can run on this host, with which
// engine, and why. It checks the host's features and the type of the program.
// It changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// State tells what a finding means for a run.
type State string

// States of a finding.
const (
	OK       State = "ok"
	Limited  State = "limited" // runs are possible, with limitations
	No       State = "no"      // no run is possible
	Unneeded State = "unneeded"
)

// Finding is the result of one check.
type Finding struct {
	Subject string `json:"subject"`
	State   State  `json:"state"`
	Text    string `json:"text"`
}

// Choice is the result for one engine.
type Choice struct {
	Engine string `json:"engine"` // one of config's constants
	Runs   bool   `json:"runs"`
	Why    string `json:"why"`
}

// Report holds all results.
type Report struct {
	Runs    bool             `json:"runs"`             // the command can run; without a command: some command can run
	Engine  string           `json:"engine,omitempty"` // engine that lklrun would use; empty: none
	Why     string           `json:"why"`              // reason for this engine, or why there is none
	Engines []Choice         `json:"engines,omitempty"`
	Host    []Finding        `json:"host"`
	Command []Finding        `json:"command,omitempty"`
	Program *program.Program `json:"program,omitempty"`
}

// Question describes what to examine.
type Question struct {
	Command string // empty: examine only the host
	Stack   *stack.Stack
	Stacks  []*stack.Stack // all available stacks

	FindHost         func() (string, error)                 // returns the path of lklhost
	FindPreload      func(library string) (string, error)   // returns the path of a library of the engine preload
	LookNotification func() (preflight.Notification, error) // examines the host features that supervise needs
	CheckFilter      func() error                           // checks that the host has seccomp filters
	CheckTrace       func() error                           // examines the host features that trace needs
	MakeNamespaces   func(ctx context.Context) error        // creates a user namespace and a network namespace in it
}

// Examine performs all checks.
func Examine(ctx context.Context, q Question) *Report {
	r := &Report{}
	r.host(ctx, q)
	if q.Command != "" {
		r.command(q.Command)
	}
	for _, f := range r.Host {
		if f.State == No {
			r.Why = f.Subject + ": " + f.Text
			return r
		}
	}
	for _, f := range r.Command {
		if f.State == No {
			r.Why = f.Text
			return r
		}
	}
	r.engines(ctx, q)
	for _, c := range r.Engines { // choose the first engine that is available
		if r.Runs = c.Runs; c.Runs {
			r.Engine, r.Why = c.Engine, c.Why
			return r
		}
	}
	r.Why = r.Engines[0].Why
	return r
}

// engines checks, in order of preference, whether each engine can handle the
// command's sockets.
func (r *Report) engines(ctx context.Context, q Question) {
	choice := func(engine, why string, err error) {
		if err != nil {
			why = text.OneLine(err.Error())
		}
		r.Engines = append(r.Engines, Choice{engine, err == nil, why})
	}
	_, err := q.LookNotification()
	choice(config.EngineSupervise, "this host supports seccomp user notification, which works with dynamic and static programs", err)
	why := "the kernel can be loaded into a dynamic program; programs that it starts have no network"
	err = r.checkPreload(q)
	if err == nil {
		var lacks []string
		if lacks, err = preflight.LookConfinement(ctx, q.MakeNamespaces, q.CheckFilter); len(lacks) > 0 {
			why += "; without " + strings.Join(lacks, " and ") + ", only the seccomp filter isolates them from the host's network"
		}
	}
	choice(config.EnginePreload, why, err)
	choice(config.EngineTrace, "this host supports ptrace and seccomp filters, which work with dynamic and static programs; slower than supervise, and programs cannot use ptrace (strace, gdb)", q.CheckTrace())
}

// checkPreload returns an error if the engine preload cannot run the command.
func (r *Report) checkPreload(q Question) error {
	p, library := r.Program, program.PreloadLibrary
	if p != nil {
		var err error
		if _, p, err = program.ThroughEnv([]string{p.Path}, p); err != nil {
			return err
		}
		library = p.PreloadLibrary()
	}
	if err := preflight.CheckPreload(q.Stack, p); err != nil {
		return err
	}
	_, err := q.FindPreload(library)
	return err
}

func (r *Report) host(ctx context.Context, q Question) {
	add := func(subject string, state State, format string, args ...any) {
		r.Host = append(r.Host, Finding{subject, state, text.OneLine(fmt.Sprintf(format, args...))})
	}
	// need adds a check. If the check fails, no run is possible.
	need := func(subject, text string, err error) {
		if err != nil {
			add(subject, No, "%v", err)
			return
		}
		add(subject, OK, "%s", text)
	}
	var u unix.Utsname
	err := unix.Uname(&u)
	need("kernel", unix.ByteSliceToString(u.Sysname[:])+" "+unix.ByteSliceToString(u.Release[:])+", "+unix.ByteSliceToString(u.Machine[:]), err)
	if p := preflight.LookProcess(); p.Restricted() {
		add("process", Limited, "%v", p)
	}
	if n, err := q.LookNotification(); err != nil {
		add("seccomp", Limited, "%v", err)
		if err := q.CheckFilter(); err != nil {
			add("seccomp filters", Limited, "%v", err)
		}
	} else if limits := n.Limits(); limits != "" {
		add("seccomp", Limited, "user notification is available; %s", limits)
	} else {
		add("seccomp", OK, "user notification is available")
	}
	if preflight.NeedsUserNamespaces() {
		if err := namespaces(ctx, q.MakeNamespaces); err != nil {
			add("user namespaces", Limited, "%v; without a network namespace, only the seccomp filter isolates the command from the host's network", err)
		} else {
			add("user namespaces", OK, "can be created, with a network namespace inside")
		}
	} else {
		add("user namespaces", Unneeded, "not required: this process has CAP_SYS_ADMIN")
	}
	path, err := q.FindHost()
	need("lklhost", path, err)
	r.stack(q.Stack, No)
	for _, s := range q.Stacks {
		if s.Name != q.Stack.Name {
			r.stack(s, Limited)
		}
	}

	for _, f := range link.Check(ctx) {
		state := OK
		if f.Limited {
			state = Limited
		}
		add(f.Subject, state, "%s", f.Text)
	}
	if err := preflight.CheckFuse(); err != nil {
		add("stack's files", Limited, "programs have no /proc/net, /proc/sys/net and /sys/class/net: %v", err)
	} else {
		add("stack's files", OK, "programs see the stack's /proc/net, /proc/sys/net and /sys/class/net")
	}
	add("host's MPTCP", Unneeded, "not required: the stack has its own")
}

// stack adds the result for a stack's library. If there is no library, the
// result has the state missing.
func (r *Report) stack(s *stack.Stack, missing State) {
	f := Finding{"stack " + s.Name, OK, s.LibraryPath()}
	if f.Text == "" {
		f.Text = "the host's own kernel"
	}
	if err := s.CheckLibrary(); err != nil {
		f.State, f.Text = missing, err.Error()
	}
	r.Host = append(r.Host, f)
}

// namespaces returns an error if this user cannot create the namespaces that a
// run needs.
func namespaces(ctx context.Context, try func(context.Context) error) error {
	err := try(ctx)
	if err == nil {
		return nil
	}
	if known := preflight.CheckUserNamespaces(); known != nil {
		return known
	}
	var no unix.Errno
	if errors.As(err, &no) {
		err = no
	}
	return fmt.Errorf("cannot be created here (%w): a security module or a container's seccomp filter forbids it; run lklrun as root, or allow it", err)
}

func (r *Report) command(command string) {
	add := func(subject string, state State, text string) {
		r.Command = append(r.Command, Finding{subject, state, text})
	}
	p, err := program.Look(command)
	r.Program = p
	var cannot *program.Error
	if errors.As(err, &cannot) {
		err = cannot.Err // the message already contains the command
	}
	if p == nil {
		add("program", No, err.Error())
		return
	}
	add("program", OK, p.Path)
	if p.Format != "" {
		add("format", OK, describe(p))
	}
	if err != nil {
		add("execution", No, err.Error())
		return
	}
	for i := p.Interpreter; i != nil; i = i.Interpreter {
		add("interpreter", OK, i.Path+": "+describe(i))
	}
	if text, heeded := privileges(p); text != "" {
		refused := preflight.CheckSetUID(p, nil)
		switch {
		case refused != nil:
			add("privileges", No, refused.Error())
		case !heeded:
			add("privileges", Unneeded, text)
		case preflight.NeedsUserNamespaces():
			add("privileges", Limited, fmt.Sprintf("%s, which has no effect: the program has no_new_privs and runs as uid %d", text, os.Geteuid()))
		default:
			add("privileges", OK, text+", which takes effect")
		}
	}
}

// describe returns the type of a program's file.
func describe(p *program.Program) string {
	switch p.Format {
	case program.FormatELF:
		text := fmt.Sprintf("ELF, %d-bit, %s, %s", p.Bits, p.Machine, p.Linkage)
		if p.Loader != "" {
			text += ", loaded by " + p.Loader
		}
		return text
	case program.FormatScript:
		return "script"
	case program.FormatPlain:
		return "unknown format, executed by sh"
	case program.FormatOther:
		return "executed by a binfmt_misc handler"
	}
	return "executable but not readable, so lklrun cannot examine it"
}

// privileges lists the privileges that the program gains when it is executed.
// It reports whether the kernel applies them. For a script, the privileges of
// its interpreter count.
func privileges(p *program.Program) (text string, heeded bool) {
	for {
		var parts []string
		if p.SetUID {
			parts = append(parts, fmt.Sprintf("set-user-ID to %d", p.UID))
		}
		if p.SetGID {
			parts = append(parts, fmt.Sprintf("set-group-ID to %d", p.GID))
		}
		if p.Capabilities {
			parts = append(parts, "file capabilities")
		}
		text := strings.Join(parts, ", ")
		switch {
		case p.Privileged():
			return text, true
		case text != "" && p.NoSUID:
			return text + ", which have no effect on this file system (nosuid)", false
		case text != "":
			return text + ", which the kernel ignores on a script", false
		case p.Interpreter == nil:
			return "", false
		}
		p = p.Interpreter
	}
}
