// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
)

// ManifestFile is the bundle's manifest beside its files.
const ManifestFile = "bundle.json"

// Manifest is what a bundle consists of: bin/bundles/lklrun-ARCH.json.
type Manifest struct {
	Arch  string              `json:"arch"` // as Go calls it
	Hash  string              `json:"hash"` // sha256 of the archive, in hexadecimal digits
	Files []ManifestFileEntry `json:"files"`
}

// ManifestFileEntry is one file of a bundle.
type ManifestFileEntry struct {
	Name   string      `json:"name"`           // below the bundle, with slashes
	Size   int64       `json:"size"`           // bytes
	Mode   fs.FileMode `json:"mode"`           // permissions
	SHA256 string      `json:"sha256"`         // of its content, in hexadecimal digits
	Link   string      `json:"link,omitempty"` // a symbolic link to this
}

// Install makes the bundle at from, when it is whole, appear at to, in one step, and
// takes away bundles beside it that nothing runs from. When to is there already,
// from is taken away.
func Install(from, to string) error {
	if err := verify(from); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		// Only an empty folder is replaced: somebody else was faster.
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("installing the bundle: %w", err)
		}
		if err := os.RemoveAll(from); err != nil {
			return err
		}
	}
	tidy(filepath.Dir(to), filepath.Base(to))
	return nil
}

// verify says what is wrong with the files that were put there.
func verify(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return fmt.Errorf("the bundle that was put here: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("the bundle that was put here: %s: %w", ManifestFile, err)
	}
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if f.Link != "" {
			continue // what it leads to is looked at
		}
		sum, err := hashOf(path)
		if err != nil {
			return fmt.Errorf("the bundle that was put here: %w", err)
		}
		if sum != f.SHA256 {
			return fmt.Errorf("the bundle that was put here: %s has come damaged; start again", f.Name)
		}
	}
	return nil
}

func hashOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// spareTime is how young a folder must be to be left alone by tidy: somebody may be
// about to run what is in it.
const spareTime = 10 * time.Minute

// tidy takes away other bundles than keep, and cut-off beginnings of such, that
// nobody uses. What cannot be taken away stays.
func tidy(base, keep string) {
	base, err := filepath.EvalSymlinks(base) // as the kernel names it
	if err != nil {
		return
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	used := running(base)
	forApps(base, used)
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		if err != nil || !e.IsDir() || name == keep || !isBundle(name) || used[name] > 0 || time.Since(info.ModTime()) < spareTime {
			continue
		}
		_ = os.RemoveAll(filepath.Join(base, name))
	}
}

// isBundle tells whether a folder's name is a bundle's: twelve hexadecimal digits,
// and behind a dot, of one that is being put there, more.
func isBundle(name string) bool {
	hash, _, _ := strings.Cut(name, ".")
	return len(hash) == 12 && strings.Trim(hash, "0123456789abcdef") == ""
}

// running counts, by the folders below base, the processes that run from one or have a
// library of it: with the engine preload, that of a stack that came along.
func running(base string) map[string]int {
	used := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, maps := range all {
		text, err := os.ReadFile(maps)
		if err != nil {
			continue // gone, or not ours: then it does not run from here
		}
		its := map[string]bool{}
		for line := range strings.Lines(string(text)) { // proc_pid_maps(5)
			if _, path, ok := strings.Cut(line, " "+base+"/"); ok {
				name, _, _ := strings.Cut(path, "/")
				its[name] = true
			}
		}
		for name := range its {
			used[name]++
		}
	}
	return used
}

// AppFolder has the scripts that start apps, beside the bundles.
const AppFolder = "app"

// forApps adds the bundles from which such scripts start apps, which are in use also
// while the app does not run: without its bundle it would start on the host's stack.
func forApps(base string, used map[string]int) {
	all, _ := filepath.Glob(filepath.Join(base, AppFolder, "*"))
	for _, script := range all {
		text, err := os.ReadFile(script)
		if err != nil {
			continue // it was taken away
		}
		for _, word := range strings.Split(string(text), "/") {
			if isBundle(word) {
				used[word]++
			}
		}
	}
}

// Remove takes the place away from the device, when nothing but this process runs
// from it.
func (p Place) Remove() error {
	if !isBundle(filepath.Base(p.Bundle)) {
		return fmt.Errorf("%s is no bundle's folder: this is for lklrun cleanup --device", p.Bundle)
	}
	used := running(p.Base)
	used[filepath.Base(p.Bundle)]-- // this process
	for name, n := range used {
		if n > 0 {
			return fmt.Errorf("%s: %d programs run from %s in it, so it was left alone", p.Base, n, name)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(p.Base, "run", "*", instance.JournalFile)); len(left) > 0 { // a constant pattern
		return fmt.Errorf("%s: what a run changed on this device is not undone, so it was left alone: run `lklrun cleanup` on it", filepath.Dir(left[0]))
	}
	for _, name := range []string{"run", "tmp"} {
		if err := os.RemoveAll(filepath.Join(p.Base, name)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(p.Base)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isBundle(e.Name()) {
			if err := os.RemoveAll(filepath.Join(p.Base, e.Name())); err != nil {
				return err
			}
		}
	}
	_ = os.Remove(p.Base) // something that is not ours is in it: it stays
	return nil
}
