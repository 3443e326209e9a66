// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
)

// filesMost limits the size of a device's files in one request.
const filesMost = 256 << 20

// Fetch copies files of an instance's run directory to the local folder that
// represents it. It omits files that do not exist. See ondevice.Read.
func (f *Forwarder) Fetch(ctx context.Context, info *instance.Info, names ...string) error {
	out, said := remote.Head{Most: filesMost}, remote.Head{}
	args := append([]string{"device", "read", info.Name}, names...)
	if err := f.run(ctx, remote.Command{Stdout: &out, Stderr: &said}, &said, args...); err != nil {
		return err
	}
	if out.More() {
		return f.broken(fmt.Errorf("files of instance %q: larger than the limit of %d MB", info.Name, filesMost>>20))
	}
	var all map[string][]byte
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return f.broken(fmt.Errorf("reading files of instance %q: %w", info.Name, err))
	}
	for name, data := range all {
		if !slices.Contains(names, name) && name != crash.KeptFile {
			continue
		}
		if err := os.WriteFile(filepath.Join(info.Files(), name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Keep stores data as the file of counters in the instance's run directory.
func (f *Forwarder) Keep(ctx context.Context, info *instance.Info, data []byte) error {
	var said remote.Head
	return f.run(ctx, remote.Command{Stdin: bytes.NewReader(data), Stderr: &said}, &said, "device", "keep", info.Name)
}

// run runs a command of the device's lklrun. If it fails, its message is the
// error.
func (f *Forwarder) run(ctx context.Context, c remote.Command, said *remote.Head, args ...string) error {
	status, err := f.ready.Call(ctx, c, args...)
	if err != nil {
		return f.broken(err)
	}
	if status != 0 {
		var w words
		_, _ = w.Write(said.Bytes()) // to memory
		return fmt.Errorf("%s: lklrun on the device exited with status %d: %s", f.name, status, w.line())
	}
	return nil
}
