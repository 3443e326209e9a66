// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// EnvPath is the environment variable that lists the directories to search for stacks
// first, separated by colons.
const EnvPath = "LKLRUN_STACKS"

// SystemDir contains stacks of packages other than lklrun.
const SystemDir = "/usr/share/lklrun/stacks"

// SearchPath is the list of directories with stacks: $LKLRUN_STACKS, the directory beside
// this program, the user's own, SystemDir, and, last, that of the user who called sudo. If a symbolic link started this program,
// the directory of its target counts.
func SearchPath() []string {
	var dirs []string
	for _, d := range filepath.SplitList(os.Getenv(EnvPath)) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "stacks"))
	}
	if d, err := UserDir(); err == nil {
		dirs = append(dirs, d)
	}
	dirs = append(dirs, SystemDir)
	if d := sudoDir(); d != "" {
		dirs = append(dirs, d)
	}
	return dirs
}

// UserDir is the directory of the user's own stacks.
func UserDir() (string, error) {
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) { // the specification says to ignore a relative path
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		data = filepath.Join(home, ".local/share")
	}
	return filepath.Join(data, "lklrun/stacks"), nil
}

// sudoDir is the directory of the user who called sudo; empty if there is none. Many runs
// require root, and sudo changes $HOME.
func sudoDir() string {
	if os.Getuid() != 0 {
		return ""
	}
	u, err := user.LookupId(os.Getenv("SUDO_UID"))
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return filepath.Join(u.HomeDir, ".local/share/lklrun/stacks")
}

// Find returns the stack for arg: a path (anything with a slash) to a stack's directory
// or library, else the name of a stack in one of dirs.
func Find(arg string, dirs []string) (*Stack, error) {
	if strings.Contains(arg, "/") {
		return fromPath(arg)
	}
	if arg == "" {
		return nil, errors.New("not a stack name; `lklrun stack list` lists the stacks")
	}
	for _, d := range dirs {
		dir := filepath.Join(d, arg)
		if !isDir(dir) {
			continue
		}
		s, err := load(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return s, err
	}
	return nil, notFound(arg, dirs)
}

// optional are the stacks that `make build` omits, with the commands that make them.
var optional = map[string]string{"lkl-4.9": "make lkl-4.9"}

// version is a stack's name that `lklrun stack build` gives by default.
var version = regexp.MustCompile(`^linux-([0-9]+\.[0-9]+)$`)

func notFound(arg string, dirs []string) error {
	all, _ := List(dirs)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	where := "(looked in " + strings.Join(existing(dirs), ", ") + ")"
	hint := ""
	if st, err := os.Stat(arg); err == nil && st.IsDir() {
		hint = fmt.Sprintf("; for the directory here, write --stack ./%s", arg)
	}
	if make, ok := optional[arg]; ok {
		return fmt.Errorf("no stack %q: it is not built by default; build it with `%s` %s", arg, make, where)
	}
	if m := version.FindStringSubmatch(arg); m != nil {
		return fmt.Errorf("no stack %q; build it with `lklrun stack build --kernel %s` %s", arg, m[1], where)
	}
	if len(names) == 0 {
		return fmt.Errorf("no stack %q, and no other stacks %s%s", arg, where, hint)
	}
	return fmt.Errorf("no stack %q; %s%s", arg, suggest.Or(arg, names, "there are "+strings.Join(names, ", ")+" "+where), hint)
}

// fromPath reads a stack's directory, or creates a plain stack from a library.
func fromPath(path string) (*Stack, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("stack %w", err)
	}
	if !st.IsDir() {
		return plain(filepath.Dir(path), filepath.Base(path)), nil
	}
	s, err := load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if _, err := os.Stat(filepath.Join(path, LibraryFile)); err != nil {
		return nil, fmt.Errorf("stack %s: the directory has neither %s nor %s", path, ManifestFile, LibraryFile)
	}
	return plain(path, LibraryFile), nil
}

func plain(dir, library string) *Stack {
	return &Stack{
		Name: filepath.Base(dir), Summary: "a library without manifest",
		ABI: ABIAuto, Library: library, Dir: dir,
	}
}

// List returns the stacks in dirs, sorted by name. Of two with the same name it returns
// the first one, like Find. If a manifest cannot be read, List returns an error and the
// rest of the list.
func List(dirs []string) ([]*Stack, error) {
	var all []*Stack
	var errs []error
	seen := map[string]bool{}
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		for _, e := range entries {
			if seen[e.Name()] {
				continue
			}
			dir := filepath.Join(d, e.Name())
			if !isDir(dir) {
				continue
			}
			s, err := load(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			seen[e.Name()] = true
			if err != nil {
				errs = append(errs, err)
				continue
			}
			s.Name = e.Name() // the name for --stack
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all, errors.Join(errs...)
}

// existing returns those of dirs that exist, or the first one if none does.
func existing(dirs []string) []string {
	var some []string
	for _, d := range dirs {
		if isDir(d) {
			some = append(some, d)
		}
	}
	if some == nil && len(dirs) > 0 {
		return dirs[:1]
	}
	return some
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
