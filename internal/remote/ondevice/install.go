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

// ManifestFile is the name of the manifest in the folder of a bundle.
const ManifestFile = "bundle.json"

// Manifest lists the content of a bundle: bin/bundles/lklrun-ARCH.json.
type Manifest struct {
	Arch  string              `json:"arch"` // Go's name
	Hash  string              `json:"hash"` // sha256 of the archive, in hexadecimal digits
	Files []ManifestFileEntry `json:"files"`
}

// ManifestFileEntry is one file of a bundle.
type ManifestFileEntry struct {
	Name   string      `json:"name"`           // below the bundle, with slashes
	Size   int64       `json:"size"`           // bytes
	Mode   fs.FileMode `json:"mode"`           // permissions
	SHA256 string      `json:"sha256"`         // hash of the content, in hexadecimal digits
	Link   string      `json:"link,omitempty"` // target of a symbolic link
}

// Install checks the bundle in the folder from and renames it to its final path to.
// If that path already exists, it removes from. It also removes other bundles that
// are not in use.
func Install(from, to string) error {
	if err := verify(from); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		// rename replaces only an empty folder. On these errors,
		// another process has installed the bundle first.
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

// verify checks the uploaded files.
func verify(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return fmt.Errorf("the uploaded bundle: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("the uploaded bundle: %s: %w", ManifestFile, err)
	}
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if f.Link != "" {
			continue // the target of the link is checked
		}
		sum, err := hashOf(path)
		if err != nil {
			return fmt.Errorf("the uploaded bundle: %w", err)
		}
		if sum != f.SHA256 {
			return fmt.Errorf("the uploaded bundle: %s is damaged; retry", f.Name)
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

// spareTime is the minimum age of a folder that tidy removes, because a program in
// a younger folder may be about to start.
const spareTime = 10 * time.Minute

// tidy removes unused bundles other than keep, including partial uploads.
// Bundles that cannot be removed stay.
func tidy(base, keep string) {
	base, err := filepath.EvalSymlinks(base) // the path that the kernel shows
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

// isBundle reports whether a folder's name is that of a bundle: twelve hexadecimal
// digits, which a dot and a suffix follow during an upload.
func isBundle(name string) bool {
	hash, _, _ := strings.Cut(name, ".")
	return len(hash) == 12 && strings.Trim(hash, "0123456789abcdef") == ""
}

// running counts, for each folder below base, the processes that run from it or
// have loaded a library from it. Such a library is, for example, that of an
// uploaded stack with the engine preload.
func running(base string) map[string]int {
	used := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, maps := range all {
		text, err := os.ReadFile(maps)
		if err != nil {
			continue // the process has ended, or belongs to another user and so does not run from here
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

// AppFolder is the name of the folder with the scripts that start apps. It is in
// the same folder as the bundles.
const AppFolder = "app"

// forApps adds the bundles that the scripts in AppFolder use. A bundle counts as
// used even while the app does not run: without the bundle, the app would start on
// the host's stack.
func forApps(base string, used map[string]int) {
	all, _ := filepath.Glob(filepath.Join(base, AppFolder, "*"))
	for _, script := range all {
		text, err := os.ReadFile(script)
		if err != nil {
			continue // the script was removed
		}
		for _, word := range strings.Split(string(text), "/") {
			if isBundle(word) {
				used[word]++
			}
		}
	}
}

// Remove removes the files of the place from the device if only this process runs
// from them.
func (p Place) Remove() error {
	if !isBundle(filepath.Base(p.Bundle)) {
		return fmt.Errorf("%s is not the directory of a bundle; this command is for lklrun cleanup --device", p.Bundle)
	}
	used := running(p.Base)
	used[filepath.Base(p.Bundle)]-- // without this process
	for name, n := range used {
		if n > 0 {
			return fmt.Errorf("%s: not removed, because %d programs run from %s in it", p.Base, n, name)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(p.Base, "run", "*", instance.JournalFile)); len(left) > 0 { // a constant pattern is always valid
		return fmt.Errorf("%s: not removed, because changes of a run to this device are not undone; run `lklrun cleanup` on it", filepath.Dir(left[0]))
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
	_ = os.Remove(p.Base) // fails if it contains other files
	return nil
}
