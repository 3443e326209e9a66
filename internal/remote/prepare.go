// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
)

// spare is the free space, in bytes, that a device must have in addition to the
// space for the bundle. Run directories and logs use it.
const spare = 1 << 20

// forgetLimit is the timeout of a cleanup on the device.
const forgetLimit = 5 * time.Second

// Prepare checks that the device supports the run, and uploads the bundle if it is
// missing. If it rejects the device, it leaves no files there.
func Prepare(ctx context.Context, d Device, o Options) (_ *Ready, err error) {
	p, err := look(ctx, d, isAndroid(d))
	if err != nil {
		return nil, err
	}
	r := &Ready{Device: d, Facts: p.Facts}
	defer func() {
		if err != nil && p.made {
			r.forget(ctx, "rmdir "+Quote(p.Base))
		}
	}()
	if p.Arch == "" {
		return nil, userError(d.Name(), "its architecture is %s%s, which has no bundle; lklrun supports amd64, arm64 and arm (ARMv7)", p.Machine, after(", its ABI ", p.ABI))
	}
	b, err := findBundle(o.Bundles, p.Arch)
	if err != nil {
		return nil, userError(d.Name(), "%w", err)
	}
	if p.Base == "" {
		return nil, userError(d.Name(), "no directory there is writable and allows program execution (tried %s)", triedBases(isAndroid(d)))
	}
	if isAndroid(d) && p.UID != 0 {
		if r.Facts.Su, err = lookSu(ctx, d); err != nil {
			return nil, err
		}
		if r.Facts.Su != "" {
			r.Facts.UID = 0
		}
	}
	if o.NeedRoot != "" && r.Facts.UID != 0 {
		remedy := "log in as root, with ssh:root@HOST"
		if isAndroid(d) {
			remedy = "it has no su for the shell; try `adb root`, or use a device with root"
		}
		return nil, userError(d.Name(), "%s requires root there, and its shell is uid %d; %s", o.NeedRoot, r.Facts.UID, remedy)
	}
	r.Dir = path.Join(p.Base, b.id())
	if slices.Contains(p.bundles, b.id()) {
		return r, nil
	}
	if o.Only {
		return nil, userError(d.Name(), "lklrun is missing there, or has another version; lklrun --device installs it")
	}
	return r, r.put(ctx, b, o)
}

// isAndroid reports whether the device is one of adb's.
func isAndroid(d Device) bool { return !strings.HasPrefix(d.Name(), KindSSH) }

func triedBases(android bool) string {
	if android {
		return BaseADB
	}
	return "the user's cache directory, /tmp and /var/tmp"
}

// put uploads the bundle atomically.
func (r *Ready) put(ctx context.Context, b *bundle, o Options) error {
	if free := r.Facts.Free; free >= 0 && free < b.size+spare {
		return r.full(b, free)
	}
	files, err := b.files()
	if err != nil {
		return userError(r.Name(), "%w", err)
	}
	total := int64(0)
	for _, f := range files {
		total += f.Size
	}
	progress := func(int64) {}
	if o.Progress != nil {
		progress = func(done int64) { o.Progress(r.Name(), done, total) }
	}
	from := r.Dir + "." + rand.Text()[:8]
	mode := "755"
	if !isAndroid(r) && r.Facts.UID != 0 {
		mode = "700"
	}
	done, err := r.begin(ctx, from, mode)
	if err != nil {
		return err
	}
	defer done()
	if err := r.Push(ctx, files, from, progress); err != nil {
		if strings.Contains(err.Error(), "No space left") {
			return r.full(b, -1)
		}
		return err
	}
	at := *r
	at.Dir = from
	return r.runChecked(ctx, at.Command("device", "install", from, r.Dir))
}

func (r *Ready) full(b *bundle, free int64) error {
	const mega = 1 << 20
	if free < 0 {
		return userError(r.Name(), "its storage is full: the bundle requires %d MB in %s; free some space there", b.size/mega+2, r.Facts.Base)
	}
	return userError(r.Name(), "its storage is full: the bundle requires %d MB in %s, and only %d MB are free; free some space there", b.size/mega+2, r.Facts.Base, free/mega)
}

// runChecked runs a command. If the command fails, the error contains its output.
func (r *Ready) runChecked(ctx context.Context, line string) error {
	var out Head
	status, err := r.Run(ctx, Command{Line: line, Stdout: &out, Stderr: &out})
	if err != nil || status == 0 {
		return err
	}
	said := strings.TrimPrefix(lastLine(out.String()), "lklrun: ")
	switch {
	case strings.Contains(said, "No space left"):
		return userError(r.Name(), "its storage is full; free some space in %s", r.Facts.Base)
	case strings.Contains(said, "xec format") || strings.Contains(said, "not executable"):
		return userError(r.Name(), "it cannot run programs for %s, although its architecture is %s: wrong ABI (%s)", r.Facts.Arch, r.Facts.Machine, said)
	}
	return userError(r.Name(), "%s", text.OneLine(cmp.Or(said, "a shell command failed")))
}

// forget runs a cleanup command, even if the run has been aborted.
func (r *Ready) forget(ctx context.Context, line string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetLimit)
	defer cancel()
	_, _ = r.Run(ctx, Command{Line: line}) // if this fails, the next run cleans up
}

// PutFolder uploads files into the folder called id, beside the bundle, unless the
// folder exists. id has the form of a bundle's name, so that the cleanup of unused
// bundles removes the folder, too.
func (r *Ready) PutFolder(ctx context.Context, id string, files []File) error {
	to := path.Join(r.Facts.Base, id)
	status, err := r.Run(ctx, Command{Line: "[ -d " + Quote(to) + " ]"})
	if err != nil || status == 0 {
		return err
	}
	from := to + "." + rand.Text()[:8]
	done, err := r.begin(ctx, from, "755")
	if err != nil {
		return err
	}
	defer done()
	if err := r.Push(ctx, files, from, nil); err != nil {
		return err
	}
	return r.runChecked(ctx, fmt.Sprintf("mv %s %s", Quote(from), Quote(to)))
}

// begin creates the temporary folder of an upload. A shell on the device deletes
// the folder when done is called or the connection drops, unless the folder has
// been renamed by then.
func (r *Ready) begin(ctx context.Context, from, mode string) (done func(), err error) {
	if err := r.runChecked(ctx, "mkdir "+Quote(from)+" && chmod "+mode+" "+Quote(from)); err != nil {
		return nil, err
	}
	const ready = "begun\n" // from now on the shell ignores SIGHUP, which adbd sends when it ends
	shell, err := r.Start(ctx, "trap '' HUP; echo begun; cat >/dev/null; rm -rf "+Quote(from), io.Discard)
	if err == nil {
		if _, err = io.ReadFull(shell, make([]byte, len(ready))); err != nil {
			shell.Close()
			err = broken(r.Name(), "its shell did not start: %w", err)
		}
	}
	if err != nil {
		r.forget(ctx, "rm -rf "+Quote(from))
		return nil, err
	}
	return func() {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if shell.CloseWrite() == nil {
				_, _ = shell.Wait()
			}
		}()
		select {
		case <-gone:
		case <-time.After(forgetLimit):
		}
		shell.Close()
	}, nil
}

// MakeFolder creates a folder on the device. Only the launcher's user can access
// it.
func (r *Ready) MakeFolder(ctx context.Context, dir string) error {
	return r.runChecked(ctx, r.asLauncher("mkdir -m 700 "+Quote(dir)))
}

// RemoveFolder removes a folder from the device. It reports no error if the device
// no longer answers.
func (r *Ready) RemoveFolder(ctx context.Context, dir string) {
	r.forget(ctx, r.asLauncher("rm -rf "+Quote(dir)))
}

// Fetch writes the content of a file on the device to w. A missing file counts
// as empty.
func (r *Ready) Fetch(ctx context.Context, name string, w io.Writer) error {
	var said Head
	status, err := r.Run(ctx, Command{Line: r.asLauncher(fmt.Sprintf("[ ! -e %s ] || cat %[1]s", Quote(name))), Stdout: w, Stderr: &said})
	if err == nil && status != 0 {
		err = broken(r.Name(), "%s", cmp.Or(lastLine(said.String()), "the file could not be read"))
	}
	return err
}

// asLauncher makes a shell command run as the user of the launcher.
func (r *Ready) asLauncher(line string) string {
	if r.Facts.Su == "" {
		return line
	}
	return asRoot(r.Facts.Su, line)
}
