// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// SystemFolder is the folder of the administrator's profiles for all users.
const SystemFolder = "/etc/lklrun"

// Names inside a configuration folder.
const (
	fileName       = "config.json"
	profilesFolder = "profiles"
)

// Sources describes the sources of a configuration.
type Sources struct {
	Flags   Layer
	Environ []string
	File    string // file to read in place of the user's own file; "": read the user's own file, if it exists
	NoFile  bool   // read no configuration file
}

// UserFolder returns the folder of the user's own configuration, according to
// the XDG base directory specification. It returns "" if there is none.
func UserFolder(environ []string) string {
	v := variables(environ)
	if dir := v["XDG_CONFIG_HOME"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, "lklrun")
	}
	if home := v["HOME"]; filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "lklrun")
	}
	return ""
}

// Load reads and merges all sources: the defaults, LKL's own variables and
// file, the configuration file, LKLRUN_* and the flags.
func Load(s Sources) (*Config, error) {
	own, err := s.read(s.file)
	if err != nil {
		return nil, err
	}
	profiles, err := s.profiles(own)
	if err != nil {
		return nil, err
	}
	variables, err := HijackEnvironment(s.Environ)
	if err != nil {
		return nil, err
	}
	lkl, err := s.read(s.hijackFile)
	if err != nil {
		return nil, err
	}
	c, err := Resolve(profiles, variables, lkl.Layer, own.Layer, Environment(s.Environ), s.Flags)
	if err == nil {
		err = c.readPolicy()
	}
	return c, err
}

// read reads the file that find returns. It reads the file only once, because the
// file may be a pipe.
func (s *Sources) read(find func() (place, error)) (*File, error) {
	at, err := find()
	if err != nil || at.name == "" {
		return &File{}, err
	}
	return at.read()
}

// place is a file to read, and the option or variable that names it.
type place struct{ name, by string }

// file returns the configuration file to read.
func (s *Sources) file() (place, error) {
	if s.NoFile {
		return place{}, nil
	}
	if s.File != "" {
		return place{s.File, "--config"}, nil
	}
	if name := variables(s.Environ)["LKLRUN_CONFIG"]; name != "" {
		return place{name, "LKLRUN_CONFIG"}, nil
	}
	dir := UserFolder(s.Environ)
	if dir == "" {
		return place{}, nil
	}
	name := filepath.Join(dir, fileName)
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && !readable(dir) {
		return place{}, nil
	} else if err != nil {
		return place{}, fmt.Errorf("the user's configuration: %w", err)
	}
	return place{name, "the user's configuration"}, nil
}

// readable reports whether a folder can be accessed. For example, if sudo keeps
// HOME, it can be the inaccessible home of another user.
func readable(dir string) bool {
	_, err := os.ReadDir(dir)
	return err == nil
}

// hijackFile returns the file that LKL's own variable names.
func (s *Sources) hijackFile() (place, error) {
	if s.NoFile {
		return place{}, nil
	}
	return place{variables(s.Environ)[hijackFileVariable], hijackFileVariable}, nil
}

// readText reads a file of at most maxFile bytes.
func readText(name string) ([]byte, error) {
	f, err := os.Open(name)
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return nil, fmt.Errorf("%s: %w", name, pe.Err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, fmt.Errorf("%s: is a directory; expected a file", name)
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

func (p place) read() (*File, error) {
	text, err := readText(p.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.by, err)
	}
	return ParseFile(p.name, text)
}

// LoadProfiles loads all profiles: the built-in ones, and those of SystemFolder,
// the user's folder and the configuration file. If several profiles have the same
// name, the last one applies.
func (s *Sources) LoadProfiles() (Profiles, error) {
	own, err := s.read(s.file)
	if err != nil {
		return nil, err
	}
	return s.profiles(own)
}

func (s *Sources) profiles(own *File) (Profiles, error) {
	all := BuiltinProfiles()
	folders := []string{SystemFolder, UserFolder(s.Environ)}
	if s.NoFile {
		folders = nil
	}
	for _, dir := range folders {
		if dir == "" {
			continue
		}
		names, _ := filepath.Glob(filepath.Join(dir, profilesFolder, "*.json"))
		for _, name := range names {
			text, err := readText(name)
			if err != nil {
				return nil, fmt.Errorf("reading a profile: %w", err)
			}
			p, err := ParseProfile(strings.TrimSuffix(filepath.Base(name), ".json"), name, text)
			if err != nil {
				return nil, err
			}
			all[p.Name] = p
		}
	}
	maps.Copy(all, own.Profiles)
	return all, nil
}
