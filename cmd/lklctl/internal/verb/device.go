// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// deviceEnv is the environment variable with the default of --device. lklrun uses
// the same variable.
const deviceEnv = "LKLRUN_DEVICE"

// reach is the way in which a verb uses --device.
type reach int

const (
	reachNone reach = iota // the verb does not use instances
	reachOne               // the verb queries one device
	reachEach              // the verb queries several devices in turn
	reachList              // the verb prints a line for each instance of all devices
	reachSelf              // the verb handles --device itself
)

// reaches lists the verbs. All others query one device.
var reaches = map[string]reach{
	"list": reachList, "extcap": reachSelf, "app": reachSelf,
	"netstat": reachEach, "mptcp": reachEach, "counters": reachEach, "account": reachEach,
	"lease": reachEach, "guard": reachEach, "sysctl": reachEach,
	"kubectl": reachNone, "man": reachNone, "help": reachNone, "completion": reachNone,
}

// endless lists flags with which a verb runs until it is ended, or starts
// something. It then queries only one device.
var endless = []string{"watch", "listen", "around"}

// body performs a verb.
type body func(cmd *cobra.Command, args []string) error

// Perform runs a verb on the instances of the devices selected by --device.
func (c *Call) Perform(cmd *cobra.Command, args []string, do body) error {
	c.Began = true
	top := cmd
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	how, known := reaches[top.Name()]
	if !known {
		how = reachOne
	}
	if c.Device == "" || how == reachNone || how == reachSelf || !top.HasParent() {
		return do(cmd, args)
	}
	if f := cmd.Flags().Lookup("netns"); f != nil && f.Changed {
		return exit.Usagef("--netns is about namespaces of this machine; it conflicts with --device")
	}
	targets, err := c.Targets(cmd.Context())
	if err != nil {
		return err
	}
	if len(targets) > 1 {
		if how == reachOne || cmd.HasParent() && top != cmd {
			return exit.Usagef("--device %s: %s supports only one device at a time; name one of them", c.Device, cmd.CommandPath())
		}
		for _, name := range endless {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
				return exit.Usagef("--device %s: --%s supports only one device at a time; name one of them", c.Device, name)
			}
		}
	}
	far, err := c.ConnectAll(cmd.Context(), targets)
	if err != nil {
		return err
	}
	defer far.Close()
	switch {
	case how == reachList && len(targets) > 1:
		return far.error(c.listed(far, cmd, args, do))
	case len(targets) > 1:
		return c.eachDevice(far, cmd, args, do)
	}
	c.Far, c.Place = far.all[0], far.all[0].Place()
	return far.error(do(cmd, args))
}

// Node is a node of Kubernetes.
type Node struct {
	Cluster *remote.Cluster
	Agent   remote.KubePod // the pod on the node that contains lklrun
}

// target returns the node in the form of --device.
func (n *Node) target() remote.Target {
	return remote.Target{Kind: remote.KindNode, Name: n.Agent.Node}
}

// UseNode makes the call use the instances of a node.
func (c *Call) UseNode(n *Node) { c.Node, c.Device = n, n.target().String() }

// Targets returns the devices selected by --device.
func (c *Call) Targets(ctx context.Context) ([]remote.Target, error) {
	if c.Node != nil {
		if c.Device != c.Node.target().String() {
			return nil, exit.Usagef("--device %s: conflicts with a pod of Kubernetes; remove it", c.Device)
		}
		return []remote.Target{c.Node.target()}, nil
	}
	all, err := remote.Parse(c.Device)
	if err != nil {
		return nil, exit.Usagef("--device %w", err)
	}
	return remote.Expand(ctx, all)
}

// Remote holds the devices of one call.
type Remote struct {
	folder *forward.Folder
	ready  []*remote.Ready
	all    []*forward.Forwarder // one for each target, in the same order
}

// ConnectAll connects to all devices in parallel. It fails if one of them cannot
// be reached.
func (c *Call) ConnectAll(ctx context.Context, targets []remote.Target) (*Remote, error) {
	far, errs, err := c.Connect(ctx, targets, false)
	if err != nil {
		return nil, err
	}
	for _, err := range errs {
		if err != nil {
			far.Close()
			return nil, err
		}
	}
	return far, nil
}

// Connect connects to devices. errs contains an error for each device that cannot
// be reached. If only is set, nothing is uploaded to a device.
func (c *Call) Connect(ctx context.Context, targets []remote.Target, only bool) (far *Remote, errs []error, err error) {
	folder, err := forward.NewFolder()
	if err != nil {
		return nil, nil, err
	}
	far = &Remote{folder: folder, ready: make([]*remote.Ready, len(targets)), all: make([]*forward.Forwarder, len(targets))}
	errs = make([]error, len(targets))
	var wg sync.WaitGroup
	for n, t := range targets {
		wg.Go(func() {
			told := sync.OnceFunc(func() { cli.Note(c.Stderr, Program, "%s: uploading lklrun", t) })
			if c.Node != nil {
				far.ready[n], errs[n] = c.Node.Cluster.Ready(c.Node.Agent)
			} else {
				far.ready[n], errs[n] = Prepare(ctx, t, remote.Options{Only: only, Progress: func(string, int64, int64) { told() }})
			}
			if errs[n] == nil {
				far.all[n], errs[n] = forward.Open(ctx, far.ready[n], folder.Path)
			}
		})
	}
	wg.Wait()
	return far, errs, nil
}

// Prepare prepares a device. Tests replace it.
var Prepare = func(ctx context.Context, t remote.Target, o remote.Options) (*remote.Ready, error) {
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

// Places returns the devices that could be reached.
func (far *Remote) Places() (all []instance.Place) {
	for _, f := range far.all {
		if f != nil {
			all = append(all, f.Place())
		}
	}
	return all
}

// Close closes the connections to the devices.
func (far *Remote) Close() {
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

// error returns the error of a device whose connection has failed, or else the
// error of the verb.
func (far *Remote) error(err error) error {
	if err == nil {
		return nil
	}
	for _, f := range far.all {
		if gone := f.Err(); gone != nil {
			return gone
		}
	}
	return err
}

// listed makes list show the instances of several devices.
func (c *Call) listed(far *Remote, cmd *cobra.Command, args []string, do body) error {
	c.Places = far.Places()
	return do(cmd, args)
}

// eachDevice runs a verb on each device in turn. Each line is prefixed with the
// device's name. With JSON, the documents are collected in a list with the device
// of each document.
func (c *Call) eachDevice(far *Remote, cmd *cobra.Command, args []string, do body) error {
	stdout, stderr := c.Stdout, c.Stderr
	defer func() { c.Stdout, c.Stderr = stdout, stderr }()
	worst := 0
	rows := []deviceRow{}
	for _, f := range far.all {
		c.Far, c.Place = f, f.Place()
		var text strings.Builder
		behind := prefixed{w: stderr, prefix: f.Place().Device + ": "}
		c.Stdout, c.Stderr = &text, &behind
		if c.Output == cli.OutputTable {
			c.Stdout = &prefixed{w: stdout, prefix: f.Place().Device + ": "}
		}
		status := c.Fail((&Remote{all: []*forward.Forwarder{f}}).error(do(cmd, args)))
		worst = max(worst, status)
		rows = append(rows, newDeviceRow(f.Place().Device, status, text.String()))
	}
	if c.Output != cli.OutputTable {
		if err := cli.WriteJSON(stdout, rows); err != nil {
			return err
		}
	}
	if worst == 0 {
		return nil
	}
	return &saidError{worst}
}

// Fetch copies files of the run directory of an instance on another machine to
// the local folder that represents it.
func (c *Call) Fetch(ctx context.Context, info *instance.Info, names ...string) error {
	if c.Far == nil {
		return nil
	}
	return c.Far.Fetch(ctx, info, names...)
}

// Keep stores the counters in file in the run directory of an instance on
// another machine.
func (c *Call) Keep(ctx context.Context, info *instance.Info, file string) error {
	if c.Far == nil {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return c.Far.Keep(ctx, info, data)
}

// deviceRow is the JSON output of a verb for one of several devices.
type deviceRow struct {
	Device string          `json:"device"`           // the device, in the syntax of --device
	Status int             `json:"status"`           // exit status for this device alone
	Result json.RawMessage `json:"result,omitempty"` // output for this device; absent if the verb failed
}

func newDeviceRow(device string, status int, text string) deviceRow {
	r := deviceRow{Device: device, Status: status}
	if json.Valid([]byte(text)) {
		r.Result = json.RawMessage(text)
	}
	return r
}

// saidError ends lklctl with a status and without a message, because all messages
// have been printed.
type saidError struct{ status int }

func (e *saidError) Error() string { return fmt.Sprintf("status %d", e.status) }

// prefixed writes a prefix before each line.
type prefixed struct {
	w      io.Writer
	prefix string
	within bool // inside a line
}

// Columns returns the width that the prefix leaves.
func (p *prefixed) Columns() int {
	return max(cli.Columns(p.w)-len(p.prefix), 0)
}

func (p *prefixed) Write(text []byte) (int, error) {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !p.within {
			b.WriteString(p.prefix)
		}
		b.WriteString(line)
		p.within = line[len(line)-1] != '\n'
	}
	_, err := io.WriteString(p.w, b.String())
	return len(text), err
}
