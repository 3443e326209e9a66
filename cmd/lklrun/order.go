// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// order is a run in the form sent to a device's lklrun. All sources of its
// configuration are read here. They are sent as flags, and settings without a
// flag as a file.
type order struct {
	flags     []string
	config    string   // text of a configuration file
	command   []string // the program and its arguments
	root      string   // the part that needs root
	stack     []remote.File
	stackID   string // the folder's name on the device
	stackFile string // file in that folder; empty: the folder itself
	stays     bool
	captures
}

// order builds the order from the command line.
func (r *runner) order(args []string) (*order, error) {
	c, err := r.load(args)
	if err != nil {
		return nil, err
	}
	r.config = c
	if len(c.Run.Command) == 0 {
		return nil, errors.New("no command to run; expected lklrun --device DEVICE [FLAG]... -- COMMAND [ARG]...")
	}
	o := &order{command: c.Run.Command, root: needsRoot(&c.Run), stays: c.Run.Detach}
	others := map[string]any{}
	for _, s := range config.Settings() {
		for _, w := range c.Words[s.Key] {
			if err := o.take(&s, w, others); err != nil {
				return nil, w.From.Wrap(err)
			}
		}
	}
	if len(others) > 0 {
		text, err := json.Marshal(others)
		if err != nil {
			return nil, err
		}
		o.config = string(text)
	}
	if r.dryRun {
		o.flags = append(o.flags, "--dry-run", "--output="+r.output.String())
	}
	for _, n := range c.Run.Notes {
		cli.Note(os.Stderr, self, "%s", n)
	}
	return o, nil
}

// take adds one word of a setting. It returns an error if the setting is not
// possible on another machine.
func (o *order) take(s *config.Setting, w config.Word, others map[string]any) error {
	switch {
	case w.From.Kind == config.FromDefault, s.Key == "command", s.Key == "profile":
		return nil // the profile's settings are among the other words
	case s.Key == "interfaces" && strings.HasPrefix(w.Text, config.TypeFD+":"):
		return fmt.Errorf("%q: a descriptor cannot be handed to another machine; use another type with --device", w.Text)
	case s.Key == "capture":
		if c, err := config.ParseCapture(w.Text); err != nil || !c.Ring() {
			o.captures.all = append(o.captures.all, c)
			return err
		}
	case s.Key == "stack" && strings.Contains(w.Text, "/"):
		return o.takeStack(w.Text)
	case s.Flag == "" && s.Kind == config.Texts:
		list, _ := others[s.Key].([]string)
		others[s.Key] = append(list, w.Text)
		return nil
	case s.Flag == "":
		others[s.Key] = json.Number(w.Text)
		return nil
	}
	o.flags = append(o.flags, "--"+s.Flag+"="+w.Text)
	return nil
}

// takeStack reads a stack of this machine to upload it.
func (o *order) takeStack(name string) error {
	s, err := stack.Find(name, nil)
	if err != nil {
		return err
	}
	if s.ABI == stack.ABIHost {
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
		o.stack = append(o.stack, remote.File{Name: as, Mode: 0o755, Size: n, Open: func() (io.ReadCloser, error) { return os.Open(name) }})
		return err
	}
	o.stackFile = filepath.Base(s.LibraryPath())
	if err := add(s.LibraryPath(), o.stackFile); err != nil {
		return err
	}
	err = add(filepath.Join(s.Dir, stack.ManifestFile), stack.ManifestFile)
	if st, serr := os.Stat(name); serr == nil && st.IsDir() {
		o.stackFile = ""
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if o.stackFile != "" { // only a library
		o.stack = o.stack[:1]
		err = nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a folder that contains only a library
	}
	o.stackID = hex.EncodeToString(h.Sum(nil))[:12]
	return err
}

// stay makes the run outlive this lklrun, if wanted.
func (o *order) stay(wanted bool) {
	if wanted && !o.stays {
		o.stays = true
		o.flags = append(o.flags, "--detach")
	}
}

// put uploads the stack to a device.
func (o *order) put(ctx context.Context, r *remote.Ready) error {
	if err := o.captures.put(ctx, r); err != nil || o.stackID == "" {
		return err
	}
	return r.PutFolder(ctx, o.stackID, o.stack)
}

// start returns the order for one device.
func (o *order) start(r *remote.Ready) session.StartMessage {
	args := append(append([]string{}, o.flags...), o.captures.flags()...)
	if o.stackID != "" {
		args = append(args, "--stack="+path.Join(r.Facts.Base, o.stackID, o.stackFile))
	}
	args = append(append(args, "--"), o.command...)
	return session.StartMessage{Args: args, Config: o.config, Stay: o.stays}
}

// needsRoot names the part of a run that needs root on any device.
func needsRoot(run *config.Run) string {
	if len(run.Ifaces) > 0 {
		return "--iface " + strings.Join(run.Ifaces, ",")
	}
	for _, i := range run.Interfaces {
		switch i.Type {
		case config.TypeRaw, config.TypeRawIP, config.TypeMacvtap:
			return "--if " + cmp.Or(i.Type+":"+i.Device, i.Type)
		}
	}
	if run.User != "" {
		return "--user"
	}
	return ""
}
