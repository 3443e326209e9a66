// SPDX-License-Identifier: Apache-2.0

// Package preflight examines the host for a run, which is the first of three steps.
// Its result is data. The second step, internal/run/plan, plans the run from
// these facts alone. The third step, internal/run/launch, carries out the plan.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/link"
	_ "github.com/lklrun/lklrun/internal/link/all" // registers the interface types
	"github.com/lklrun/lklrun/internal/link/packet"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/capture"
	"github.com/lklrun/lklrun/pkg/config"
)

// Facts are the properties of the host that a plan needs.
type Facts struct {
	Command         []string // command to execute instead of the run's; nil: execute the run's
	Engine          string   // engine for the sockets, one of config's constants
	MissingFeatures []string // what this engine does without: features of the host's kernel, or a network namespace
	Preload         string   // library that the engine preload loads into the program
	EngineNotes     []string // messages to the user about the choice of the engine
	RunRoot         string
	Machine         string      // identifies this machine
	Resolv          string      // content of /etc/resolv.conf
	NoResolv        bool        // there is no such file
	ResolvUpstream  string      // content of systemd-resolved's resolv.conf
	Hosts           string      // content of /etc/hosts
	User            *runas.User // the user that the target runs as; nil: this process's
	Interfaces      []Interface
	Sockets         []sockdiag.Socket // host's sockets at the ports of the run's servers
	Lacks           []string          // rights that this process lacks for the run; only if the run is dry
	NoGuard         string            // reason why addresses cannot be shared with the host; empty: sharing is possible
}

// Interface is an interface of the run with what its driver found.
type Interface struct {
	config.Interface
	Found any
}

// interfaces returns the interfaces of a run. If the run names none, interfaces
// returns one of the default type, unless the run uses the host's own stack.
func interfaces(run config.Run, s *stack.Stack) []config.Interface {
	if len(run.Interfaces) == 0 && s.ABI != stack.ABIHost {
		return []config.Interface{{Type: config.DefaultType}}
	}
	return run.Interfaces
}

// Look gathers the facts for a run. It is also the preflight check: it returns
// an error, with the remedy, for each condition that would make the run fail
// later. It changes nothing. If the run is dry, which means that it will only be
// planned, missing rights are no errors.
func Look(run config.Run, s *stack.Stack, dry bool) (Facts, error) {
	f := Facts{RunRoot: instance.Root()}
	if err := CheckAllow(run, s); err != nil {
		return f, err
	}
	if err := s.CheckLibrary(); err != nil {
		return f, err
	}
	if err := f.lookUser(run.User, dry); err != nil {
		return f, err
	}
	mayShare := false
	publish := run.Publish
	for _, i := range interfaces(run, s) {
		q := link.Query{Interface: &i, Publish: publish, Dry: dry}
		if err := f.lookLink(&q); err != nil {
			return f, err
		}
		publish, mayShare = q.Publish, mayShare || q.MayShare
	}
	if err := f.lookGuard(run, mayShare, dry); err != nil {
		return f, err
	}
	if err := checkCaptures(run.Captures); err != nil {
		return f, err
	}
	if err := f.lookEngine(run, s); err != nil {
		return f, err
	}
	f.lookMachine()
	f.Resolv = readText("/etc/resolv.conf")
	_, err := os.Lstat("/etc/resolv.conf")
	f.NoResolv = errors.Is(err, fs.ErrNotExist)
	if _, err := os.Stat("/etc/hosts"); err != nil && len(run.AddHosts) > 0 {
		return f, fmt.Errorf("--add-host: this machine has no file that lklrun can cover with the names (%w); create /etc/hosts", err)
	}
	f.Hosts = readText("/etc/hosts")
	f.ResolvUpstream = readText("/run/systemd/resolve/resolv.conf")
	return f, nil
}

// LookLink examines the host for an additional interface of a run in progress.
// passed is a descriptor that was passed together with the request; nil if
// there is none. LookLink also returns the name of the machine.
func LookLink(i config.Interface, passed *os.File) (found Interface, machine string, err error) {
	var f Facts
	f.lookMachine()
	if err := f.lookLink(&link.Query{Interface: &i, Passed: passed}); err != nil {
		return Interface{}, "", err
	}
	return f.Interfaces[0], f.Machine, nil
}

func (f *Facts) lookMachine() {
	if f.Machine = strings.TrimSpace(readText("/etc/machine-id")); f.Machine == "" {
		f.Machine, _ = os.Hostname() // an empty name works as well
	}
}

// lookLink lets the driver of an interface examine the host.
func (f *Facts) lookLink(q *link.Query) error {
	ctx, cancel := lookLimit()
	defer cancel()
	found, err := link.Look(ctx, q)
	if err != nil {
		return link.Explain(q.Interface, err)
	}
	for _, lack := range q.MissingRights {
		f.Lacks = append(f.Lacks, link.Explain(q.Interface, lack).Error())
	}
	f.Interfaces = append(f.Interfaces, Interface{*q.Interface, found})
	return nil
}

// lookLimit returns a context that bounds the queries to the host's kernel
// about one subject.
func lookLimit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// lookGuard finds the sockets of the host at the --listen ports. It also checks
// whether rules can be created, if the run may need them.
func (f *Facts) lookGuard(run config.Run, mayShare, dry bool) (err error) {
	ctx, cancel := lookLimit()
	defer cancel()
	var ports []uint16
	for _, l := range run.Listen {
		ports = append(ports, uint16(l))
	}
	if f.Sockets, err = guard.Sockets(ctx, ports); err != nil {
		return err
	}
	mode := cmp.Or(run.RSTGuard, config.GuardAuto)
	if !mayShare || mode == config.GuardOff {
		return nil
	}
	if dry && !netdev.Capable(unix.CAP_NET_ADMIN) {
		return nil // nobody without this right can tell; the interface has reported its own
	}
	if _, err := guard.Choose(ctx, mode); err != nil {
		f.NoGuard = err.Error()
	}
	return nil
}

// checkCaptures lets libpcap parse the filters. Compiled filters depend on the
// link type, but the grammar is the same for all link types, so one check is
// enough.
func checkCaptures(all []config.Capture) error {
	for _, c := range all {
		if _, err := capture.Compile(c.Filter, capture.LinkTypeEthernet, config.MaxSnap); err != nil {
			return fmt.Errorf("--capture %s: %w", c.File, err)
		}
	}
	return nil
}

// Pick chooses an interface type for each device that a run names without a
// type.
func Pick(run *config.Run) error {
	for _, name := range run.Ifaces {
		i, err := packet.Choose(name)
		if err != nil {
			return fmt.Errorf("--iface %s: %w", name, err)
		}
		run.Interfaces = append(run.Interfaces, i)
	}
	if len(run.Interfaces) > config.MaxInterfaces {
		return fmt.Errorf("--iface: %d interfaces in total; the limit is %d", len(run.Interfaces), config.MaxInterfaces)
	}
	run.Ifaces = nil
	if err := config.CheckInterfaces(run.Interfaces); err != nil {
		return fmt.Errorf("--iface: %w", err)
	}
	return nil
}
