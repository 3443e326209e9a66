// SPDX-License-Identifier: Apache-2.0

// Package record keeps what is needed to repeat a lab in virtual time elsewhere, and finds the
// first difference between two runs.
//
// The folder of a record contains record.json, the folder of the topology file in files, and the
// results in results. It is untrusted input: nothing in it can name a file outside of it, except
// programs that are only compared. The programs of the topology file are another matter: to
// repeat a run means to run them.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/run/virtual"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/lab"
)

// Names in the folder of a record.
const (
	File    = "record.json"
	Files   = "files"
	Results = "results"
)

// version is the version of the format.
const version = 1

// Limits of the folder of a topology file, and of record.json.
const (
	maxBytes  = 100 << 20
	maxFiles  = 10000
	maxRecord = 4 << 20
)

// dirPrefix begins the names of programs in the folder of the topology file.
const dirPrefix = "${dir}/"

// Record is the content of record.json.
type Record struct {
	Version int               `json:"version"`
	Lklrun  string            `json:"lklrun"` // its version
	Lab     string            `json:"lab"`    // topology file in files
	Seed    uint64            `json:"seed"`
	Vars    map[string]string `json:"vars,omitempty"`    // values of --var
	Until   time.Duration     `json:"until,omitempty"`   // of --until, in nanoseconds
	StopAt  string            `json:"stop_at,omitempty"` // of --stop-at
	Capture bool              `json:"capture"`
	Dir     string            `json:"dir"`    // folder in which the files were for the run
	Folder  string            `json:"folder"` // of the results, as results.json shows it
	Work    string            `json:"work"`   // working folder of the programs, in files
	Env     []string          `json:"env"`    // environment of the programs

	// SHA-256 of what runs.
	Virtual  string            `json:"lklvirtual"`
	Stacks   map[string]string `json:"stacks"`   // libraries, by the name of the stack
	Programs map[string]string `json:"programs"` // executed programs; empty: removed before the end
	Files    map[string]string `json:"files"`
}

// passed are the environment variables that programs get in a run that is recorded.
var passed = []string{"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}

func isPassed(name string) bool {
	return slices.Contains(passed, name) || strings.HasPrefix(name, "LC_")
}

// Environ returns the environment for the programs of a run that is recorded: PATH, HOME, the
// user and the locale. It contains no other variables, which may be secrets.
func Environ() (env []string) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); isPassed(name) {
			env = append(env, e)
		}
	}
	slices.Sort(env)
	return env
}

// Begin makes the folder of a record, with a copy of the folder of a topology file.
func Begin(folder, topology string, t *lab.Topology) (*Record, error) {
	dir, err := filepath.Abs(filepath.Dir(topology))
	if err != nil {
		return nil, err
	}
	work, err := os.Getwd()
	if err == nil {
		work, err = filepath.Rel(dir, work)
	}
	if err != nil || !filepath.IsLocal(work) {
		return nil, fmt.Errorf("programs run in the working folder, which must be that of %s or below it; change to %s", filepath.Base(topology), dir)
	}
	if old, err := os.ReadDir(folder); err == nil && len(old) > 0 {
		return nil, fmt.Errorf("%s exists and is not empty; remove it or choose another folder", folder)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	r := &Record{
		Version: version, Lab: filepath.Base(topology), Work: work, Env: Environ(),
		Folder: filepath.Join(folder, Results), Stacks: map[string]string{}, Programs: map[string]string{},
	}
	if err := os.MkdirAll(filepath.Join(folder, Files), 0o755); err != nil {
		return nil, err
	}
	omit := []string{folder, filepath.Join(dir, work, t.Name+".results")}
	src, err := os.OpenRoot(dir)
	if err == nil {
		r.Files, err = copyFolder(src, filepath.Join(folder, Files), omit)
		src.Close()
	}
	if err != nil {
		return nil, errors.Join(plain(err), r.Remove())
	}
	return r, nil
}

// Remove removes a record that was begun.
func (r *Record) Remove() error {
	folder := filepath.Dir(r.Folder)
	return errors.Join(os.RemoveAll(r.Folder), os.RemoveAll(filepath.Join(folder, Files)), os.Remove(folder))
}

// copyFolder copies the files of a folder, and returns their digests. A link must lead to a place
// in the folder, and there is nothing but files, folders and links.
func copyFolder(src *os.Root, to string, omit []string) (map[string]string, error) {
	from := src.Name()
	dst, err := os.OpenRoot(to)
	if err != nil {
		return nil, err
	}
	defer dst.Close()
	c := &copying{src: src, dst: dst, left: maxBytes, digests: map[string]string{}}
	err = fs.WalkDir(src.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if slices.Contains(omit, filepath.Join(from, path)) {
			return fs.SkipDir
		}
		if c.count++; c.count > maxFiles {
			return fmt.Errorf("%s has more than %d files; move the topology file and the files that its programs use to a folder of their own", from, maxFiles)
		}
		if err := c.add(path, e.Type()); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(from, path), bare(err))
		}
		return nil
	})
	for _, path := range slices.Backward(c.folders) { // after the files in them
		if err == nil {
			err = c.attributes(path)
		}
	}
	return c.digests, err
}

// copying is the state of copyFolder.
type copying struct {
	src, dst *os.Root
	left     int64
	count    int
	folders  []string
	digests  map[string]string
}

func (c *copying) add(path string, mode fs.FileMode) error {
	switch mode {
	case fs.ModeDir:
		c.folders = append(c.folders, path)
		return c.dst.Mkdir(path, 0o700)
	case fs.ModeSymlink:
		to, err := c.src.Readlink(path)
		if err == nil {
			// It refuses to leave the folder.
			if _, err = c.src.Stat(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("a link that does not stay in the folder (%w); replace it by a file", bare(err))
		}
		c.digests[path] = "link:" + to
		return c.dst.Symlink(to, path)
	case 0:
		return c.file(path)
	}
	return errors.New("neither a file, a folder nor a link; remove it")
}

func (c *copying) file(path string) error {
	f, err := c.src.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	out, err := c.dst.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), io.LimitReader(f, c.left+1))
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if c.left -= n; c.left < 0 {
		return fmt.Errorf("with it, the folder has more than %d MiB; move the topology file and the files that its programs use to a folder of their own", maxBytes>>20)
	}
	c.digests[path] = hex.EncodeToString(h.Sum(nil))
	return c.attributes(path)
}

// attributes copies the mode and the time, which programs can see.
func (c *copying) attributes(path string) error {
	st, err := c.src.Stat(path)
	if err == nil {
		mode := st.Mode().Perm()
		if st.IsDir() {
			mode |= 0o700 // so that it can be removed
		}
		err = c.dst.Chmod(path, mode)
	}
	if err == nil {
		err = c.dst.Chtimes(path, st.ModTime(), st.ModTime())
	}
	return err
}

// maxProgram limits the size of a program that is compared.
const maxProgram = 1 << 30

// program returns the SHA-256 of a program, or "" if there is none. Other files are not read: the
// path may be a stranger's.
func program(path string) string {
	if st, err := os.Stat(path); err != nil || st.Mode()&0o111 == 0 {
		return ""
	}
	return digest(path)
}

// digest returns the SHA-256 of a file, or "" if there is none.
func digest(path string) string {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Size() > maxProgram {
		return ""
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxProgram)); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// identify sets the digests of lklvirtual and of the stacks.
func (r *Record) identify(t *lab.Topology) error {
	path, err := virtual.Find("")
	if err != nil {
		return err
	}
	r.Virtual = digest(path)
	p, err := t.Plan()
	if err != nil {
		return err
	}
	r.Stacks = map[string]string{}
	for _, n := range p.Nodes {
		s, err := stack.Find(n.Stack, stack.SearchPath())
		if err != nil {
			return err
		}
		if r.Stacks[n.Stack] = digest(filepath.Join(s.Dir, s.Library)); r.Stacks[n.Stack] == "" {
			return fmt.Errorf("the stack %s: its library cannot be read", n.Stack)
		}
	}
	return nil
}

// Finish writes record.json after the run, which has executed these programs.
func (r *Record) Finish(t *lab.Topology, programs []string) error {
	if err := r.identify(t); err != nil {
		return err
	}
	for _, path := range programs {
		name := path
		if below, ok := strings.CutPrefix(path, r.Dir+"/"); ok {
			name = dirPrefix + below
		}
		r.Programs[name] = program(path)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(r.Folder), File), append(b, '\n'), 0o644)
	}
	return err
}

// Open reads record.json in a folder.
func Open(folder string) (*Record, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, plain(err)
	}
	defer root.Close()
	f, err := open(root, File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; expected a folder of lklrun lab run --record", folder, plain(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("more than %d bytes", maxRecord)
	}
	var r *Record
	if err == nil {
		r, err = parse(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, File), bare(err))
	}
	return r, nil
}

// parse parses record.json.
func parse(b []byte) (*Record, error) {
	var format struct{ Version int }
	if err := json.Unmarshal(b, &format); err != nil {
		return nil, err
	}
	if format.Version != version {
		return nil, fmt.Errorf("version %d of the format; this lklrun reads version %d", format.Version, version)
	}
	r := new(Record)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	return r, r.check()
}

// open opens a regular file.
func open(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s: not a file", name))
	}
	return f, nil
}

// bare returns the error without a path.
func bare(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// plain returns the error without the name of the system call.
func plain(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	return err
}

// check checks what a stranger may have written.
func (r *Record) check() error {
	for _, e := range r.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || !isPassed(name) || strings.ContainsRune(e, 0) {
			return fmt.Errorf("env: %q is not a variable that lklrun records", name)
		}
	}
	switch {
	case r.Lab == "" || r.Lab != filepath.Base(r.Lab) || !filepath.IsLocal(r.Lab):
		return fmt.Errorf("lab: %q is not the name of a file", r.Lab)
	case !filepath.IsLocal(r.Work):
		return fmt.Errorf("work: %q leaves the folder", r.Work)
	case !filepath.IsAbs(r.Dir) || r.Dir == "/":
		return fmt.Errorf("dir: %q is not an absolute path below /", r.Dir)
	case !filepath.IsAbs(r.Folder):
		return fmt.Errorf("folder: %q is not an absolute path", r.Folder)
	case r.Until < 0:
		return fmt.Errorf("until: %v is negative", r.Until)
	}
	return nil
}

// scratch matches the names of the folders in which labs run.
var scratch = regexp.MustCompile(`^lklrun-record-[0-9]{1,10}$`)

// makeDir makes Dir: that of the record if it is possible, because programs see its name.
func (r *Record) makeDir() (err error) {
	parent, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return err
	}
	was := r.Dir
	if filepath.Dir(was) == parent && scratch.MatchString(filepath.Base(was)) && os.Mkdir(was, 0o700) == nil {
		return nil
	}
	r.Dir, err = os.MkdirTemp(parent, "lklrun-record-")
	return err
}

// Unpack copies the files of a record to a new folder, Dir, and returns how they differ from those
// that were recorded.
func (r *Record) Unpack(folder string) (differences []string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, plain(err)
	}
	defer root.Close()
	src, err := root.OpenRoot(Files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, Files), bare(err))
	}
	defer src.Close()
	if err := r.makeDir(); err != nil {
		return nil, err
	}
	got, err := copyFolder(src, r.Dir, nil)
	if err != nil {
		return nil, errors.Join(plain(err), os.RemoveAll(r.Dir))
	}
	return compareDigests("file", r.Files, got), nil
}

// compareDigests names what differs, and what is missing or new.
func compareDigests(what string, want, got map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch d, ok := got[name]; {
		case !ok || d == "" && want[name] != "":
			all = append(all, fmt.Sprintf("%s %q is missing", what, name))
		case d != want[name]:
			all = append(all, fmt.Sprintf("%s %q differs from the recorded one", what, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			all = append(all, fmt.Sprintf("%s %q was not recorded", what, name))
		}
	}
	return all
}

// Differences names the differences between what was recorded and what this machine has, for the
// topology of the record, whose files are in Dir.
func (r *Record) Differences(t *lab.Topology, lklrun string) (all []string, err error) {
	now := &Record{}
	if err := now.identify(t); err != nil {
		return nil, err
	}
	if lklrun != r.Lklrun {
		all = append(all, fmt.Sprintf("lklrun is %s, recorded with %s", lklrun, r.Lklrun))
	}
	if now.Virtual != r.Virtual {
		all = append(all, "lklvirtual differs from the recorded one")
	}
	all = append(all, compareDigests("stack", r.Stacks, now.Stacks)...)
	programs := map[string]string{}
	for name, want := range r.Programs {
		path := name
		if below, ok := strings.CutPrefix(name, dirPrefix); ok {
			if path = filepath.Join(r.Dir, below); !filepath.IsLocal(below) {
				continue // it is missing
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				programs[name] = want // made by the lab
				continue
			}
		}
		if want == "" { // not known
			programs[name] = ""
			continue
		}
		programs[name] = program(path)
	}
	return append(all, compareDigests("program", r.Programs, programs)...), nil
}
