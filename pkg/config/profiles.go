// SPDX-License-Identifier: Apache-2.0

package config

import (
	_ "embed" // embeds the built-in profiles
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// Profile is a named set of settings.
type Profile struct {
	Name    string
	Summary string
	Where   string // FILE:LINE; "": built in
	layer   Layer
}

// Values lists the profile's settings.
func (p *Profile) Values() []Value {
	c := Config{Words: p.layer.Words}
	return c.Explain()
}

// Profiles maps names to profiles.
type Profiles map[string]*Profile

//go:embed profiles.json
var builtin []byte

// BuiltinProfiles returns the profiles that are always available.
func BuiltinProfiles() Profiles {
	root, err := parseDocument("profiles.json", FromFile, settingsForm, builtin)
	all := Profiles{}
	if err == nil {
		err = all.read(root)
	}
	if err != nil {
		panic(err) // cannot happen: a test ensures that the profiles are valid
	}
	for _, p := range all {
		p.Where = ""
		for _, words := range p.layer.Words {
			for n := range words {
				words[n].From.Where, words[n].From.Path = "", ""
			}
		}
	}
	return all
}

// ParseProfile parses a file that contains one profile.
func ParseProfile(profile, file string, text []byte) (*Profile, error) {
	if err := checkProfileName(profile); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	root, err := parseDocument(file, FromFile, settingsForm, text)
	if err != nil {
		return nil, err
	}
	return readProfile(profile, root)
}

// read reads an object of profiles.
func (p Profiles) read(n node) error {
	members, err := n.members("an object of profiles")
	if err != nil {
		return err
	}
	for _, m := range members {
		if err := checkProfileName(m.name); err != nil {
			return m.errorf("%w", err)
		}
		one, err := readProfile(m.name, m.node)
		if err != nil {
			return err
		}
		p[m.name] = one
	}
	return nil
}

func readProfile(name string, n node) (*Profile, error) {
	p := &Profile{Name: name, Where: n.origin().Where}
	members, err := n.members("an object of settings")
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.name == "summary" {
			p.Summary, err = m.text("a string")
		} else {
			err = p.layer.readSetting(m, true)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, words := range p.layer.Words {
		for n := range words {
			words[n].From.Kind, words[n].From.Profile = FromProfile, name
		}
	}
	return p, nil
}

func checkProfileName(name string) error {
	if name == NoProfile {
		return fmt.Errorf("%q is reserved and means no profile; choose another name", name)
	}
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return fmt.Errorf("%q is not a valid profile name; expected letters, digits, - and _", name)
	}
	return nil
}

// find returns the profile that a word names, or nil for no profile.
func (p Profiles) find(w Word) (*Profile, error) {
	if w.Text == NoProfile {
		return nil, nil
	}
	if one, ok := p[w.Text]; ok {
		return one, nil
	}
	return nil, w.From.Wrap(fmt.Errorf("%q: no such profile; %s", w.Text, suggest.Suggest(w.Text, p.Names(), "there are "+strings.Join(p.Names(), ", "))))
}

// Names lists the names of the profiles.
func (p Profiles) Names() []string { return slices.Sorted(maps.Keys(p)) }
