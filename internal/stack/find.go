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
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// EnvPath is the environment variable that lists the directories to search for stacks
// first, separated by colons.
const EnvPath = "LKLRUN_STACKS"

// SystemDir contains the administrator's stacks, for all users.
const SystemDir = "/usr/local/lib/lklrun/stacks"

// A Place is a directory with stacks, and its owner.
type Place struct{ Dir, Origin string }

// Origins of stacks.
const (
	OriginProject = "project" // $LKLRUN_STACKS
	OriginUser    = "user"    // UserDir
	OriginSudo    = "sudo"    // that of the user who called sudo
	OriginSystem  = "system"  // SystemDir
	OriginLklrun  = "lklrun"  // beside this program: its own stacks, and those of other packages
)

// SearchPath is the list of directories with stacks: those of the project, of the user, of
// the user who called sudo, of the system, and of lklrun. The working directory is not
// among them, because a project that was downloaded could otherwise replace the kernel.
func SearchPath() []Place {
	var places []Place
	for _, d := range filepath.SplitList(os.Getenv(EnvPath)) {
		if d != "" {
			places = append(places, Place{d, OriginProject})
		}
	}
	if d, err := UserDir(); err == nil {
		places = append(places, Place{d, OriginUser})
	}
	if d := sudoDir(); d != "" {
		places = append(places, Place{d, OriginSudo})
	}
	places = append(places, Place{SystemDir, OriginSystem})
	// If a symbolic link started this program, the directory of its target counts.
	if exe, err := os.Executable(); err == nil {
		places = append(places, Place{filepath.Join(filepath.Dir(exe), "stacks"), OriginLklrun})
	}
	return places
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
// or library, else the name of a stack in one of the places.
func Find(arg string, places []Place) (*Stack, error) {
	if strings.Contains(arg, "/") {
		return fromPath(arg)
	}
	if arg == "" {
		return nil, errors.New("not a stack name; `lklrun stack list` lists the stacks")
	}
	for _, p := range places {
		dir := filepath.Join(p.Dir, arg)
		if !isDir(dir) {
			continue
		}
		s, err := load(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if s != nil {
			s.Origin = p.Origin
		}
		return s, err
	}
	return nil, notFound(arg, places)
}

// optional are the stacks that `make build` omits, with the commands that make them.
var optional = map[string]string{"lkl-4.9": "make lkl-4.9"}

func notFound(arg string, places []Place) error {
	all, _ := List(places)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	where := "(looked in " + strings.Join(existing(places), ", ") + ")"
	hint := ""
	if st, err := os.Stat(arg); err == nil && st.IsDir() {
		hint = fmt.Sprintf("; for the directory here, write --stack ./%s", arg)
	}
	if make, ok := optional[arg]; ok {
		return fmt.Errorf("no stack %q: it is not built by default; build it with `%s` %s", arg, make, where)
	}
	// `lklrun stack build` gives such names by default.
	if m := regexp.MustCompile(`^linux-([0-9]+\.[0-9]+)$`).FindStringSubmatch(arg); m != nil {
		return fmt.Errorf("no stack %q; build it with `lklrun stack build --kernel %s` %s", arg, m[1], where)
	}
	if len(names) == 0 {
		return fmt.Errorf("no stack %q, and no other stacks %s%s", arg, where, hint)
	}
	return fmt.Errorf("no stack %q; %s%s", arg, suggest.Suggest(arg, names, "there are "+strings.Join(names, ", ")+" "+where), hint)
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

// List returns the stacks that Find finds by name, sorted by name. If a manifest cannot be
// read, List returns an error and the rest of the list.
func List(places []Place) ([]*Stack, error) {
	all, err := ListAll(places)
	return slices.DeleteFunc(all, func(s *Stack) bool { return s.Shadowed }), err
}

// ListAll is like List, but includes the stacks that others of the same name shadow. These
// follow the one that Find returns.
func ListAll(places []Place) ([]*Stack, error) {
	var all []*Stack
	var errs []error
	seen := map[string]bool{} // names
	dirs := map[string]bool{}
	for _, p := range places {
		if real, err := filepath.EvalSymlinks(p.Dir); err == nil && dirs[real] {
			continue // no stack shadows itself
		} else if err == nil {
			dirs[real] = true
		}
		entries, err := os.ReadDir(p.Dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(p.Dir, e.Name())
			if strings.HasPrefix(e.Name(), ".") || !isDir(dir) { // .NAME.new is being built
				continue
			}
			s, err := load(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			shadowed := seen[e.Name()]
			seen[e.Name()] = true
			if err != nil {
				if !shadowed {
					errs = append(errs, err)
				}
				continue
			}
			s.Name, s.Origin, s.Shadowed = e.Name(), p.Origin, shadowed // the name is that of --stack
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *Stack) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(errs...)
}

// existing returns the directories that exist, or the first one if none does.
func existing(places []Place) []string {
	var some []string
	for _, p := range places {
		if isDir(p.Dir) {
			some = append(some, p.Dir)
		}
	}
	if some == nil && len(places) > 0 {
		return []string{places[0].Dir}
	}
	return some
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
