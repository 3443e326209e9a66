// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/session"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// job is a run on devices: its configuration from all sources of this machine, and
// the files that belong to it. lklrun on the device receives the configuration as
// JSON. It plans the run itself, because the plan depends on the device.
type job struct {
	run       config.Run
	flags     []string // flags for lklrun on the device that are about this command, not about the run
	root      string   // part of the run that needs root; empty: none
	stack     []remote.File
	stackID   string // folder of the stack on the device; empty: run.Stack is installed on the device
	stackFile string // file in that folder; empty: the folder itself
	captures
}

// job reads the configuration of the command line.
func (r *runner) job(args []string) (*job, error) {
	c, err := r.load(args)
	if err != nil {
		return nil, err
	}
	if len(c.Run.Command) == 0 {
		return nil, errors.New("no command to run; expected lklrun --device DEVICE [FLAG]... -- COMMAND [ARG]...")
	}
	for n, i := range c.Run.Interfaces {
		if w := c.Words["interfaces"][n]; i.FD != 0 {
			return nil, w.From.Wrap(fmt.Errorf("%q: a device cannot use a descriptor of this machine; use another type with --device", w.Text))
		}
	}
	j := &job{run: c.Run, root: needsRoot(&c.Run)}
	j.captures.take(c.Run)
	if strings.Contains(c.Run.Stack, "/") {
		if err := j.takeStack(c.Run.Stack); err != nil {
			return nil, c.Origin("stack").Wrap(err)
		}
	}
	if r.dryRun {
		j.flags = append(j.flags, "--dry-run", "--output="+r.output.String())
	}
	for _, n := range c.Run.Notes {
		cli.Note(os.Stderr, self, "%s", n)
	}
	j.run.Notes = nil
	j.run.Detach = c.Run.Detach || r.stay
	return j, nil
}

// takeStack reads a stack of this machine to upload it.
func (j *job) takeStack(name string) error {
	s, err := stack.Find(name, nil)
	if err != nil {
		return err
	}
	if s.ABI == stack.ABIHost {
		j.run.Stack = s.Name
		return nil
	}
	h := sha256.New()
	add := func(name, as string) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := io.Copy(h, f)
		j.stack = append(j.stack, remote.File{Name: as, Mode: 0o755, Size: n, Open: func() (io.ReadCloser, error) { return os.Open(name) }})
		return err
	}
	j.stackFile = filepath.Base(s.LibraryPath())
	if err := add(s.LibraryPath(), j.stackFile); err != nil {
		return err
	}
	err = add(filepath.Join(s.Dir, stack.ManifestFile), stack.ManifestFile)
	if st, serr := os.Stat(name); serr == nil && st.IsDir() {
		j.stackFile = ""
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if j.stackFile != "" { // only a library
		j.stack = j.stack[:1]
		err = nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a folder that contains only a library
	}
	j.stackID = hex.EncodeToString(h.Sum(nil))[:12]
	return err
}

// put uploads the stack to a device.
func (j *job) put(ctx context.Context, r *remote.Ready) error {
	if err := j.captures.put(ctx, r); err != nil || j.stackID == "" {
		return err
	}
	return r.PutFolder(ctx, j.stackID, j.stack)
}

// start returns the message for one device.
func (j *job) start(r *remote.Ready) session.StartMessage {
	run := j.run
	run.Captures = j.captures.there(run.Captures)
	if j.stackID != "" {
		run.Stack = path.Join(r.Facts.Base, j.stackID, j.stackFile)
	}
	return session.StartMessage{Args: j.flags, Run: &run, Stay: run.Detach}
}

// needsRoot names the part of a run that needs root on any device.
func needsRoot(run *config.Run) string {
	if len(run.Ifaces) > 0 {
		return "--iface " + strings.Join(run.Ifaces, ",")
	}
	for _, i := range run.Interfaces {
		if t := config.LookupType(i.Type); t != nil && t.NeedsRoot {
			return "--if " + i.Target()
		}
	}
	if run.User != "" {
		return "--user"
	}
	return ""
}
