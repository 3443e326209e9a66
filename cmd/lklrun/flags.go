// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/config"
)

// sources contains the configuration from a command line: flags, and the files
// to read.
type sources struct {
	words  map[string][]string // values by the key of the setting
	file   string
	noFile bool
}

// wordsFlag is the flag of a setting. pkg/config parses the words.
type wordsFlag struct {
	s       config.Setting
	to      *sources
	changed bool
}

// Set adds a value.
func (f *wordsFlag) Set(word string) error {
	if f.s.Kind == config.Switch {
		if _, err := config.ParseSwitch(word); err != nil {
			return err
		}
	}
	if !f.s.List() || !f.changed {
		f.to.words[f.s.Key] = nil
	}
	f.changed = true
	f.to.words[f.s.Key] = append(f.to.words[f.s.Key], word)
	return nil
}

// String returns the default for the help, or the given values.
func (f *wordsFlag) String() string {
	if f.to == nil || !f.changed {
		return f.s.Default
	}
	return strings.Join(f.to.words[f.s.Key], " ")
}

// Type returns the placeholder of the value in the help.
func (f *wordsFlag) Type() string {
	switch {
	case f.s.Kind == config.Switch:
		return "bool"
	case f.s.Form != "":
		return f.s.Form
	}
	return strings.Join(f.s.Choices, "|")
}

// shorthands maps the names of flags to their short forms.
var shorthands = map[string]string{"verbose": "v", "quiet": "q"}

// add adds the flags of all settings to a flag set. A verb's own flag takes precedence over
// the setting of that name: --explain of config.
func (s *sources) add(f *pflag.FlagSet) {
	s.words = map[string][]string{}
	for _, setting := range config.Settings() {
		if setting.Flag == "" || f.Lookup(setting.Flag) != nil {
			continue
		}
		help := setting.Help
		if setting.List() {
			help += "; repeatable"
		}
		flag := f.VarPF(&wordsFlag{s: setting, to: s}, setting.Flag, shorthands[setting.Flag], help)
		if setting.Kind == config.Switch {
			flag.NoOptDefVal = "true"
		}
	}
	f.StringVar(&s.file, "config", "", "read this configuration `FILE` instead of the user's")
	f.BoolVar(&s.noFile, "no-config", false, "do not read a configuration file")
}

// load reads the configuration from all its sources.
func (s *sources) load(args []string) (*config.Config, error) {
	if s.noFile && s.file != "" {
		return nil, errors.New("--no-config: conflicts with --config; remove one of them")
	}
	var flags config.Layer
	for key, words := range s.words {
		n := slices.IndexFunc(config.Settings(), func(s config.Setting) bool { return s.Key == key })
		from := config.Origin{Kind: config.FromFlag, Where: "--" + config.Settings()[n].Flag}
		flags.Set(key, from, words...)
	}
	c, err := config.Load(config.Sources{Flags: flags, Environ: os.Environ(), File: s.file, NoFile: s.noFile})
	if err != nil {
		return nil, err
	}
	if len(args) > 0 {
		c.Run.Command = args
	}
	if name := c.Run.Name; name != "" {
		if err := instance.CheckName(name); err != nil {
			return nil, c.Origin("name").Wrap(err)
		}
	}
	return c, nil
}

// configured reads the configuration of a run that another machine has sent.
func configured(file string) (*config.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the run: %w", err)
	}
	c := new(config.Config)
	if err := json.Unmarshal(text, &c.Run); err != nil {
		return nil, fmt.Errorf("reading the configuration of the run: %w", err)
	}
	return c, nil
}

// located adds the origin of a value to an error that names a flag or a kernel
// setting, if the origin is not the command line.
func located(c *config.Config, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, s := range config.Settings() {
		for _, w := range c.Words[s.Key] {
			if w.From.Kind == config.FromFlag || w.From.Kind == config.FromDefault {
				continue
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(w.Text, "-"), "=")
			switch {
			case s.Key == "interfaces" && strings.HasPrefix(text, "--if "+target(w.Text)+" ("),
				s.Flag == "" && strings.HasPrefix(text, s.Key+" "),
				s.Key == "interfaces" && strings.HasPrefix(text, "--if "+strconv.Quote(w.Text)),
				s.Key == "sysctl" && strings.HasPrefix(text, "sysctl "+name+"="),
				s.Key != "interfaces" && s.Flag != "" && strings.HasPrefix(text, "--"+s.Flag) && !strings.HasPrefix(text, "--"+s.Flag+"-"):
				return fmt.Errorf("%s: %w", w.From, err)
			}
		}
	}
	return err
}

// target returns the TYPE:ARG of an interface's specification.
func target(spec string) string {
	t, _, _ := strings.Cut(spec, ",")
	return t
}

// checkFlags rejects flags that would have no effect.
func checkFlags(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if w, ok := f.Value.(*wordsFlag); ok && slices.Contains(w.to.words[w.s.Key], "") || !ok && f.Value.Type() == "string" && f.Value.String() == "" {
			err = cli.Usagef("--%s: the value is empty; give a value or remove the flag", f.Name)
		}
	})
	return err
}
