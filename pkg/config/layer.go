// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Sources of a value, from the weakest to the strongest.
const (
	FromDefault     = "default"
	FromLKL         = "lkl"         // LKL's own variables
	FromFile        = "file"        // a configuration file, including LKL's
	FromEnvironment = "environment" // LKLRUN_*
	FromFlag        = "flag"
	FromProfile     = "profile" // a profile; directly below the source that names it
)

// Origin describes the source of a value.
type Origin struct {
	Kind    string `json:"kind"`
	Profile string `json:"profile,omitempty"` // the profile that defines it
	Where   string `json:"where,omitempty"`   // FILE:LINE, VARIABLE or --FLAG
	Path    string `json:"path,omitempty"`    // path in a file, such as interfaces[1].mtu
}

// String formats the origin for messages.
func (o Origin) String() string {
	if o.Profile != "" {
		if o.Where == "" {
			return "profile " + o.Profile
		}
		return fmt.Sprintf("profile %s, %s", o.Profile, o.Where)
	}
	if o.Where == "" {
		return o.Kind
	}
	return o.Where
}

// Wrap adds the origin to an error about a value.
func (o Origin) Wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case o.Kind == FromFlag && strings.HasPrefix(err.Error(), `"`):
		return fmt.Errorf("%s %w", o.Where, err)
	case o.Path != "":
		return fmt.Errorf("%s: %s: %w", o, o.Path, err)
	}
	return fmt.Errorf("%s: %w", o, err)
}

// Word is one value as the source contains it, with its origin.
type Word struct {
	Text string
	From Origin
}

// Layer holds the values of one source, by the keys of settings.
type Layer struct {
	Words map[string][]Word
	Notes []string // messages about values that have no effect
}

// set replaces the layer's values of a setting.
func (l *Layer) set(key string, words ...Word) {
	if l.Words == nil {
		l.Words = map[string][]Word{}
	}
	l.Words[key] = words
}

// Set sets the values of a setting, which all have the same origin.
func (l *Layer) Set(key string, from Origin, words ...string) {
	all := make([]Word, len(words))
	for n, w := range words {
		all[n] = Word{w, from}
	}
	l.set(key, all...)
}

// Config is a run with the origin of each value.
type Config struct {
	Run   Run
	Words map[string][]Word // values by the key of the setting
}

// Resolve merges the layers with the defaults. The layers are ordered from the
// weakest to the strongest. A setting gets its value from the strongest layer that
// contains it. Each kernel setting (sysctl) counts as a separate setting. A profile
// applies directly below the layer that names it.
func Resolve(profiles Profiles, layers ...Layer) (*Config, error) {
	c := &Config{Words: map[string][]Word{}}
	for n := range settings {
		if s := &settings[n]; s.Default != "" {
			c.Words[s.Key] = []Word{{s.Default, Origin{Kind: FromDefault}}}
		}
	}
	chosen := -1 // the strongest layer that names a profile
	for n := range layers {
		if len(layers[n].Words["profile"]) > 0 {
			chosen = n
		}
	}
	for n, l := range layers {
		if n == chosen {
			p, err := profiles.find(l.Words["profile"][0])
			if err != nil {
				return nil, err
			}
			if p != nil {
				c.apply(p.layer)
			}
		}
		c.apply(l)
	}
	return c, c.read()
}

func (c *Config) apply(l Layer) {
	for key, words := range l.Words {
		if key == "sysctl" {
			words = laySysctls(c.Words[key], words)
		}
		c.Words[key] = words
	}
	c.Run.Notes = append(c.Run.Notes, l.Notes...)
}

// laySysctls merges kernel settings: a stronger setting replaces a weaker one
// of the same name.
func laySysctls(weak, strong []Word) []Word {
	replaced := map[string]bool{}
	for _, w := range strong {
		replaced[sysctlName(w.Text)] = true
	}
	kept := slices.DeleteFunc(slices.Clone(weak), func(w Word) bool { return replaced[sysctlName(w.Text)] })
	return append(kept, strong...)
}

// sysctlName returns the name in a word, with normalised separators.
func sysctlName(word string) string {
	name, _, _ := strings.Cut(word, "=")
	name = strings.TrimPrefix(strings.TrimSpace(name), "-")
	if n := strings.IndexAny(name, "./"); n >= 0 && name[n] == '/' {
		name = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
	}
	return name
}

// read builds the run from the words.
func (c *Config) read() error {
	for n := range settings {
		s := &settings[n]
		words := c.Words[s.Key]
		if limit := s.Most; s.Kind.list() && limit > 0 && len(words) > limit {
			return words[0].From.Wrap(fmt.Errorf("%d values; the limit is %d", len(words), limit))
		}
		for _, w := range words {
			if w.Text == "" {
				return w.From.Wrap(errNoWords)
			}
			if err := s.add(&c.Run, w.Text); err != nil {
				return w.From.Wrap(err)
			}
		}
	}
	return c.check()
}

// check finds conflicts between settings.
func (c *Config) check() error {
	run := &c.Run
	if err := CheckInterfaces(run.Interfaces); err != nil {
		words := c.Words["interfaces"]
		from := words[len(words)-1].From
		if n := err.index; n < len(words) {
			from = words[n].From
		}
		return from.Wrap(err)
	}
	if run.Log != "" && !run.Detach {
		return c.Words["log"][0].From.Wrap(fmt.Errorf("requires --detach; otherwise the output goes to lklrun's standard output and error"))
	}
	return nil
}

// Origin returns the origin of the first value of a setting.
func (c *Config) Origin(key string) Origin {
	if words := c.Words[key]; len(words) > 0 {
		return words[0].From
	}
	return Origin{Kind: FromDefault}
}

// Value is one line of the output of Explain.
type Value struct {
	Setting string `json:"setting"` // stack, interfaces[0], sysctl net.ipv4.tcp_ecn
	Value   string `json:"value"`
	From    Origin `json:"from"`
}

// Explain lists the final values with their origins.
func (c *Config) Explain() []Value {
	all := []Value{}
	for n := range settings {
		s := &settings[n]
		for i, w := range c.Words[s.Key] {
			v := Value{s.Key, w.Text, w.From}
			switch {
			case s.Kind == Sysctls:
				var name string
				name, v.Value, _ = strings.Cut(w.Text, "=")
				v.Setting += " " + sysctlName(name)
			case s.Kind.list():
				v.Setting += "[" + strconv.Itoa(i) + "]"
			}
			all = append(all, v)
		}
	}
	return all
}
