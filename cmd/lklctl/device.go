// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/forward"
)

// deviceEnv is the variable with the default of --device, for lklrun too.
const deviceEnv = "LKLRUN_DEVICE"

// reach is the way in which a verb uses --device.
type reach int

const (
	reachNone reach = iota // it has nothing to do with instances
	reachOne               // it queries one device
	reachEach              // it queries several devices in turn
	reachList              // it prints a line for each instance, wherever that is
	reachSelf              // it handles --device itself
)

// reaches lists the verbs. All others query one device.
var reaches = map[string]reach{
	"list": reachList, "extcap": reachSelf, "app": reachSelf,
	"netstat": reachEach, "mptcp": reachEach, "counters": reachEach, "account": reachEach,
	"lease": reachEach, "guard": reachEach, "sysctl": reachEach,
	"man": reachNone, "help": reachNone, "completion": reachNone,
}

// endless lists flags with which a verb runs until it is ended, or starts
// something. It then queries only one device.
var endless = []string{"watch", "listen", "around"}

// body performs a verb.
type body func(cmd *cobra.Command, args []string) error

// onDevices runs a verb on the instances of the devices selected by --device.
func (c *ctl) onDevices(cmd *cobra.Command, args []string, do body) error {
	verb := cmd
	for verb.HasParent() && verb.Parent().HasParent() {
		verb = verb.Parent()
	}
	how, known := reaches[verb.Name()]
	if !known {
		how = reachOne
	}
	if c.device == "" || how == reachNone || how == reachSelf || !verb.HasParent() {
		return do(cmd, args)
	}
	targets, err := c.targets(cmd.Context())
	if err != nil {
		return err
	}
	if len(targets) > 1 {
		if how == reachOne || cmd.HasParent() && verb != cmd {
			return exit.Usagef("--device %s: %s asks one device at a time; name one of them", c.device, cmd.CommandPath())
		}
		for _, name := range endless {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
				return exit.Usagef("--device %s: --%s goes with one device; name one of them", c.device, name)
			}
		}
	}
	far, err := c.reachAll(cmd.Context(), targets)
	if err != nil {
		return err
	}
	defer far.close()
	switch {
	case how == reachList && len(targets) > 1:
		return far.error(c.listed(far, cmd, args, do))
	case len(targets) > 1:
		return c.eachDevice(far, cmd, args, do)
	}
	c.far, c.place = far.all[0], far.all[0].Place()
	return far.error(do(cmd, args))
}

// targets returns the devices selected by --device.
func (c *ctl) targets(ctx context.Context) ([]remote.Target, error) {
	all, err := remote.Parse(c.device)
	if err != nil {
		return nil, exit.Usagef("--device %w", err)
	}
	all, err = remote.Expand(ctx, all)
	return all, statusOf(err)
}

// statusOf adds its exit status to a device's error.
func statusOf(err error) error {
	var known *remote.Error
	if errors.As(err, &known) {
		return &exit.StatusError{Err: err, Status: known.Status()}
	}
	return err
}

// faraway holds the devices of one call.
type faraway struct {
	folder *forward.Folder
	ready  []*remote.Ready
	all    []*forward.Forwarder // in the order of the targets
}

// reachAll connects to all devices in parallel. It fails if one of them cannot
// be reached.
func (c *ctl) reachAll(ctx context.Context, targets []remote.Target) (*faraway, error) {
	far, errs, err := c.reach(ctx, targets, false)
	if err != nil {
		return nil, err
	}
	for _, err := range errs {
		if err != nil {
			far.close()
			return nil, statusOf(err)
		}
	}
	return far, nil
}

// reach connects to devices. errs contains an error for each device that cannot
// be reached. If only is set, nothing is uploaded to a device.
func (c *ctl) reach(ctx context.Context, targets []remote.Target, only bool) (far *faraway, errs []error, err error) {
	folder, err := forward.NewFolder()
	if err != nil {
		return nil, nil, err
	}
	far = &faraway{folder: folder, ready: make([]*remote.Ready, len(targets)), all: make([]*forward.Forwarder, len(targets))}
	errs = make([]error, len(targets))
	var wg sync.WaitGroup
	for n, t := range targets {
		wg.Go(func() {
			told := sync.OnceFunc(func() { cli.Note(c.stderr, program, "%s: lklrun is put there", t) })
			far.ready[n], errs[n] = prepare(ctx, t, remote.Options{Only: only, Progress: func(string, int64, int64) { told() }})
			if errs[n] == nil {
				far.all[n], errs[n] = forward.Open(ctx, far.ready[n], folder.Path)
			}
		})
	}
	wg.Wait()
	return far, errs, nil
}

// prepare prepares a device. Tests replace it.
var prepare = func(ctx context.Context, t remote.Target, o remote.Options) (*remote.Ready, error) {
	d, err := remote.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	ready, err := remote.Prepare(ctx, d, o)
	if err != nil {
		d.Close()
		return nil, err
	}
	return ready, nil
}

func (far *faraway) close() {
	for _, f := range far.all {
		if f != nil {
			f.Close()
		}
	}
	for _, r := range far.ready {
		if r != nil {
			r.Close()
		}
	}
	far.folder.Close()
}

// error returns the error of a verb, or that of a device that is gone.
func (far *faraway) error(err error) error {
	if err == nil {
		return nil
	}
	for _, f := range far.all {
		if gone := f.Err(); gone != nil {
			return statusOf(gone)
		}
	}
	return statusOf(err)
}

// listed makes list show the instances of several devices.
func (c *ctl) listed(far *faraway, cmd *cobra.Command, args []string, do body) error {
	c.places = nil
	for _, f := range far.all {
		c.places = append(c.places, f.Place())
	}
	return do(cmd, args)
}

// eachDevice runs a verb on each device in turn. Each line is prefixed with the
// device's name. JSON documents are collected in a list that names the device
// of each.
func (c *ctl) eachDevice(far *faraway, cmd *cobra.Command, args []string, do body) error {
	stdout, stderr := c.stdout, c.stderr
	defer func() { c.stdout, c.stderr = stdout, stderr }()
	worst := 0
	rows := []deviceRow{}
	for _, f := range far.all {
		c.far, c.place = f, f.Place()
		var text strings.Builder
		behind := prefixed{w: stderr, prefix: f.Place().Device + ": "}
		c.stdout, c.stderr = &text, &behind
		if c.output == cli.OutputTable {
			c.stdout = &prefixed{w: stdout, prefix: f.Place().Device + ": "}
		}
		status := c.fail((&faraway{all: []*forward.Forwarder{f}}).error(do(cmd, args)))
		worst = max(worst, status)
		rows = append(rows, newDeviceRow(f.Place().Device, status, text.String()))
	}
	if c.output != cli.OutputTable {
		if err := cli.WriteJSON(stdout, rows); err != nil {
			return err
		}
	}
	if worst == 0 {
		return nil
	}
	return &saidError{worst}
}

// fetch copies files of the run directory of an instance on another machine to
// the local folder that represents it.
func (c *ctl) fetch(ctx context.Context, info *instance.Info, names ...string) error {
	if c.far == nil {
		return nil
	}
	return c.far.Fetch(ctx, info, names...)
}

// keep stores the counters in file in the run directory of an instance on
// another machine.
func (c *ctl) keep(ctx context.Context, info *instance.Info, file string) error {
	if c.far == nil {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return c.far.Keep(ctx, info, data)
}
