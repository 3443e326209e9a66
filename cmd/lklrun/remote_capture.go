// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/pkg/capture"
	"github.com/lklrun/lklrun/pkg/config"
)

// captures contains the files of --capture. The device writes these files, and
// fetch copies them to this machine after the end of the run.
type captures struct {
	all    []config.Capture // captures with paths on this machine
	folder string           // folder on the device, only for this run
	keys   bool             // the files contain TLS secrets
}

// take selects the captures of a run that are files.
func (c *captures) take(run config.Run) {
	c.keys = run.TLSKeys
	for _, f := range run.Captures {
		if !f.Ring() {
			c.all = append(c.all, f)
		}
	}
}

// check returns an error if captures to files are not possible. It is called before
// any change.
func (c *captures) check(devices int, stays bool) error {
	switch {
	case len(c.all) == 0:
		return nil
	case stays:
		return cli.Usagef("--capture %s: with --stay, lklrun cannot fetch the file at the end; use ring, or `lklctl --device DEVICE capture -w %[1]s`", c.all[0].File)
	case devices > 1:
		return cli.Usagef("--capture %s: %d devices cannot write to one file; use ring, or name one device", c.all[0].File, devices)
	}
	for _, f := range c.all {
		to, err := os.OpenFile(f.File, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return cli.Usagef("--capture: %w", err)
		}
		if err := to.Close(); err != nil {
			return cli.Usagef("--capture: %w", err)
		}
	}
	return nil
}

// put creates the folder on the device. The name of the folder has the form of a
// bundle's name. If the connection drops, the cleanup of bundles therefore removes
// the folder, too.
func (c *captures) put(ctx context.Context, r *remote.Ready) error {
	if len(c.all) == 0 {
		return nil
	}
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	c.folder = path.Join(r.Facts.Base, hex.EncodeToString(id)+".capture")
	return r.MakeFolder(ctx, c.folder)
}

// there returns a run's captures with the paths on the device.
func (c *captures) there(all []config.Capture) []config.Capture {
	all = slices.Clone(all)
	n := 0
	for i := range all {
		if f := &all[i]; !f.Ring() {
			f.File = path.Join(c.folder, strconv.Itoa(n))
			n++
		}
	}
	return all
}

// fetch copies the files to this machine and removes the folder on the device.
func (c *captures) fetch(ctx context.Context, r *remote.Ready) error {
	if len(c.all) == 0 {
		return nil
	}
	defer r.RemoveFolder(ctx, c.folder)
	for n, f := range c.all {
		to, err := capture.Create(f.File, c.keys)
		if err == nil {
			err = r.Fetch(ctx, path.Join(c.folder, strconv.Itoa(n)), to)
		}
		if err == nil {
			err = to.Close()
		}
		if err != nil {
			return errRun{fmt.Errorf("--capture %s: %w", f.File, err)}
		}
	}
	return nil
}
