// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// File is the content of a configuration file.
type File struct {
	Layer
	Profiles Profiles // defined in the file
}

// ParseFile parses a configuration: JSON with comments and trailing commas, or a
// file of LKL's hijack library, which it recognises by its keys. ParseFile rejects
// unknown keys and invalid values. An error names the file, the line, the path in
// the file, and the expected form.
func ParseFile(name string, text []byte) (*File, error) {
	root, err := parseDocument(name, FromFile, settingsForm, text)
	if err != nil {
		return nil, err
	}
	if isHijack(root) {
		l, err := readHijack(root)
		return &File{Layer: l}, err
	}
	f := &File{Profiles: Profiles{}}
	members, err := root.members("an object")
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		switch m.name {
		case "$schema": // only editors use this key
			_, err = m.text("the schema's address")
		case "profiles":
			err = f.Profiles.read(m.node)
		default:
			err = f.readSetting(m, false)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// readSetting reads one member of a file or of a profile.
func (l *Layer) readSetting(m member, profile bool) error {
	s := findSetting(m.name)
	if why := removed[m.name]; why != "" {
		return m.errorf("no longer a setting: %s; remove it", why)
	}
	if s == nil {
		return m.errorf("unknown key; %s", suggest.Suggest(m.name, settingKeys(profile), "expected one of "+strings.Join(settingKeys(profile), ", ")))
	}
	if profile && s.run {
		return m.errorf("is not allowed in a profile; remove it")
	}
	words, err := m.words(s)
	if err != nil {
		return err
	}
	// Report an invalid value with its position, even if a stronger source
	// overrides it.
	var r Run
	for _, w := range words {
		if err := s.add(&r, w.Text); err != nil {
			return w.From.Wrap(err)
		}
	}
	if s.Kind.list() && s.Most > 0 && len(words) > s.Most {
		return m.errorf("%d values; the limit is %d", len(words), s.Most)
	}
	l.set(s.Key, words...)
	return nil
}

func settingKeys(profile bool) []string {
	var keys []string
	for n := range settings {
		if !profile || !settings[n].run {
			keys = append(keys, settings[n].Key)
		}
	}
	if profile {
		return append(keys, "summary")
	}
	return append(keys, "profiles")
}

// words returns the value of a setting as words.
func (n node) words(s *Setting) ([]Word, error) {
	if s.Kind.list() && s.Kind != Sysctls {
		all := n.elements()
		if len(all) == 0 {
			return nil, n.errorf("%w", errEmptyList)
		}
		words := make([]Word, len(all))
		for i, e := range all {
			w, err := e.listWord(s)
			if err != nil {
				return nil, err
			}
			words[i] = e.word(w)
		}
		return words, nil
	}
	var (
		w   string
		err error
	)
	switch s.Kind {
	case Sysctls:
		return n.sysctls()
	case Size:
		w, err = n.textOrNumber("a size such as \"64M\" or \"1G\"")
	case Number:
		w, err = n.number("a number" + between(s.Least, s.Most))
	case Switch:
		w, err = n.onOff()
	default:
		want := "a string"
		if len(s.Choices) > 0 {
			want = "one of \"" + strings.Join(s.Choices, "\", \"") + "\""
		}
		w, err = n.text(want)
	}
	return []Word{n.word(w)}, err
}

func (n node) listWord(s *Setting) (string, error) {
	switch s.Kind {
	case Interfaces:
		return n.interfaceWord()
	case Numbers:
		return n.number("a number, such as 8080")
	}
	return n.text(fmt.Sprintf("a string such as %q", s.Example))
}

// sysctls reads names and values of kernel settings. In an array, each element
// is NAME=VALUE as on the command line.
func (n node) sysctls() ([]Word, error) {
	const want = "an object of names and values, such as {\"net.ipv4.tcp_ecn\": 1}"
	var words []Word
	if !n.isObject() {
		all := n.elements()
		if len(all) == 1 && all[0].path == n.path {
			return nil, n.expected(want)
		}
		for _, e := range all {
			w, err := e.text("a string, NAME=VALUE")
			if err != nil {
				return nil, err
			}
			words = append(words, e.word(w))
		}
	} else {
		members, err := n.members(want)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			v, err := m.textOrNumber("a string or a number")
			if err != nil {
				return nil, err
			}
			if m.name == "" || strings.Contains(m.name, "=") {
				return nil, m.errorf("%q is not a sysctl name", m.name)
			}
			words = append(words, m.word(m.name+"="+v))
		}
	}
	if len(words) == 0 {
		return nil, n.errorf("%w", errEmptyList)
	}
	return words, nil
}

// interfaceWord reads an interface, which is an object of keys or a
// specification in the form of --if. It returns a specification.
func (n node) interfaceWord() (string, error) {
	const want = "an object such as {\"type\": \"tap\", \"device\": \"tap0\"}, or a string such as \"tap:tap0\""
	if !n.isObject() {
		return n.text(want)
	}
	members, err := n.members(want)
	if err != nil {
		return "", err
	}
	i, err := n.interfaceTarget(members)
	if err != nil {
		return "", err
	}
	at := map[string]node{}
	for _, m := range members {
		if slices.Contains(targetKeys, m.name) {
			continue
		}
		k := findKey(m.name)
		if k == nil {
			return "", m.errorf("unknown key; %s", suggest.Suggest(m.name, keyNames(), "expected one of "+strings.Join(append(slices.Clone(targetKeys), keyNames()...), ", ")))
		}
		at[k.name] = m.node
		if err := m.setKey(&i, k); err != nil {
			return "", err
		}
	}
	if err := i.check(); err != nil {
		if m, ok := at[err.Key]; ok {
			return "", m.errorf("%w", err.Err)
		}
		return "", n.errorf("%w", err)
	}
	return i.String(), nil
}

// targetKeys are the keys for the interface's connection to the host.
var targetKeys = []string{"type", "device", "fd"}

// interfaceTarget reads the keys that correspond to TYPE:ARG.
func (n node) interfaceTarget(members []member) (Interface, error) {
	var i Interface
	find := func(name string) *member {
		k := slices.IndexFunc(members, func(m member) bool { return m.name == name })
		if k < 0 {
			return nil
		}
		return &members[k]
	}
	typ := find("type")
	if typ == nil {
		return i, n.errorf("has no type; add \"type\", one of %s", strings.Join(TypeNames(), ", "))
	}
	name, err := typ.text("one of \"" + strings.Join(TypeNames(), "\", \"") + "\"")
	if err != nil {
		return i, err
	}
	t := findType(name)
	if t == nil {
		return i, typ.errorf("%w", unknownType(name, "expected one of "+strings.Join(TypeNames(), ", ")))
	}
	spec, at := name, *typ
	for _, other := range targetKeys[1:] {
		m := find(other)
		switch {
		case m == nil && other == t.Arg:
			return i, n.errorf("has no %s, which the type %s requires", other, name)
		case m == nil:
		case other != t.Arg:
			return i, m.errorf("is not supported by the type %s; remove it", name)
		default:
			arg, err := m.text("a string, the name of a device")
			if other == "fd" {
				arg, err = m.number("the number of an open descriptor")
			}
			if err != nil {
				return i, err
			}
			spec, at = name+":"+arg, *m
		}
	}
	if err := i.setTarget(spec); err != nil {
		return i, at.errorf("%w", err)
	}
	return i, nil
}

// setKey sets one key of an interface.
func (n node) setKey(i *Interface, k *key) error {
	all := []node{n}
	if k.list {
		if all = n.elements(); len(all) == 0 {
			return n.errorf("%w", errEmptyList)
		}
	}
	for _, e := range all {
		var (
			w   string
			err error
		)
		switch {
		case k.flag:
			w, err = e.onOff()
		case k.most > 0:
			w, err = e.number("a number" + between(k.least, k.most))
		case k.name == "neigh" && e.isObject():
			w, err = e.neighbour()
		default:
			w, err = e.text("a string, " + k.form)
		}
		if err != nil {
			return err
		}
		if err := k.set(i, w); err != nil {
			return e.errorf("%w", err)
		}
	}
	return nil
}

// neighbour reads {"ip": ADDRESS, "mac": ADDRESS}.
func (n node) neighbour() (string, error) {
	members, err := n.members("an object")
	if err != nil {
		return "", err
	}
	var ip, mac string
	for _, m := range members {
		switch m.name {
		case "ip":
			ip, err = m.text("a string, ADDRESS")
		case "mac":
			mac, err = m.text("a string, xx:xx:xx:xx:xx:xx")
		default:
			err = m.errorf("unknown key; expected one of ip, mac")
		}
		if err != nil {
			return "", err
		}
	}
	if ip == "" || mac == "" {
		return "", n.errorf("a neighbour requires both ip and mac")
	}
	return ip + "|" + mac, nil
}

func between(least, most int) string {
	if most == 0 {
		return ""
	}
	return " from " + strconv.Itoa(least) + " to " + strconv.Itoa(most)
}
