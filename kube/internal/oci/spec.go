// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/config"
)

const specFile = "config.json"

// Annotations of a container. Under podman, an image can set them too, because podman copies
// the annotations of the image's manifest. Under containerd and NRI, the author of a pod
// sets them. They therefore choose nothing outside of the container's own stack, and in
// particular no interfaces: see interfacesFlag.
const (
	prefix     = "lklrun.dev/"
	noteStack  = prefix + "stack"
	noteSysctl = prefix + "sysctl."

	defaultStack = "default" // value of noteStack: the stack that the administrator chooses
)

// A spec is a container's configuration (config.json of the OCI runtime
// specification). It keeps the fields that lklrun-oci does not know.
type spec struct {
	path string
	mode os.FileMode
	all  map[string]any
}

func readSpec(path string) (*spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the container's configuration: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the container's configuration: %w", err)
	}
	s := &spec{path: path, mode: st.Mode().Perm()}
	d := json.NewDecoder(f)
	d.UseNumber() // 64-bit numbers do not fit into a float64
	if err := d.Decode(&s.all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// write replaces the file in one step.
func (s *spec) write() error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(s.all); err != nil {
		return fmt.Errorf("writing the container's configuration: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), specFile+".*")
	if err != nil {
		return fmt.Errorf("writing the container's configuration: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename
	_, err = f.Write(text.Bytes())
	err = errors.Join(err, f.Chmod(s.mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.path)
	}
	if err != nil {
		return fmt.Errorf("writing the container's configuration: %w", err)
	}
	return nil
}

// section returns an object of the configuration, or nil.
func section(m map[string]any, name string) map[string]any {
	v, _ := m[name].(map[string]any)
	return v
}

// args returns the command of the container.
func (s *spec) args() (args []string) {
	list, _ := section(s.all, "process")["args"].([]any)
	for _, a := range list {
		if text, ok := a.(string); ok {
			args = append(args, text)
		}
	}
	return args
}

// netns returns the path of the container's network namespace.
func (s *spec) netns() (string, error) {
	list, _ := section(s.all, "linux")["namespaces"].([]any)
	for _, n := range list {
		ns, _ := n.(map[string]any)
		if ns["type"] != "network" {
			continue
		}
		if path, _ := ns["path"].(string); path != "" {
			return path, nil
		}
		return "", fmt.Errorf("annotation %s: the container has an empty network, and so no interface that the stack can take over; use --network with a bridge, or remove the annotation", noteStack)
	}
	return "", fmt.Errorf("annotation %s: the container uses the host's network, which a stack does not take over; use --network with a bridge, or remove the annotation", noteStack)
}

// takeSysctls removes the settings of the network from the container's configuration and
// returns them for the stack: NAME=VALUE, sorted. The host's kernel may lack them.
func (s *spec) takeSysctls() (settings []string) {
	all := section(section(s.all, "linux"), "sysctl")
	for name, v := range all {
		if text, ok := v.(string); ok && (strings.HasPrefix(name, "net.") || strings.HasPrefix(name, "net/")) {
			settings = append(settings, name+"="+text)
			delete(all, name)
		}
	}
	slices.Sort(settings)
	return settings
}

// A request is what the annotations of a container ask for.
type request struct {
	pod *instance.Pod // nil: the container is not one of a pod

	stack      string
	interfaces []string // empty: the container's own
	sysctls    []string
	cgroup     *os.File // of the run; nil: that of this process
	socket     string   // where lklhost gets the seccomp listeners: a name in the run directory
}

// notes returns the annotations, as far as their authors may set them. Those about pods are
// containerd's only if containerd calls: podman would copy them from an image.
func (s *spec) notes(c commandLine) map[string]string {
	all := map[string]string{}
	for name, v := range section(s.all, "annotations") {
		if text, ok := v.(string); ok && (c.fromCRI() || !strings.HasPrefix(name, criPrefix)) {
			all[name] = text
		}
	}
	return all
}

// request returns nil if the container does not want a stack.
func (s *spec) request(c commandLine) (*request, error) {
	all := s.notes(c)
	r, err := requestOf(all)
	if r != nil {
		r.interfaces = append(r.interfaces, strings.Fields(c.options[interfacesFlag])...)
	}
	if r != nil {
		r.sysctls = append(s.takeSysctls(), r.sysctls...) // later ones prevail
		r.pod = newPod(all[notePodSpace], all[notePod], all[notePodUID])
	}
	return r, err
}

// requestOf returns nil if the annotations do not ask for a stack.
func requestOf(all map[string]string) (*request, error) {
	notes := maps.Clone(all)
	maps.DeleteFunc(notes, func(name, _ string) bool { return !strings.HasPrefix(name, prefix) })
	if len(notes) == 0 {
		return nil, nil
	}
	r := &request{}
	for name, text := range notes {
		switch sysctl, isSysctl := strings.CutPrefix(name, noteSysctl); {
		case name == noteStack:
			r.stack = text
		case isSysctl && sysctl != "":
			r.sysctls = append(r.sysctls, sysctl+"="+text)
		default:
			return nil, fmt.Errorf("annotation %s: unknown; expected %s or %sNAME (--runtime-flag lklrun-interfaces=... chooses interfaces)", name, noteStack, noteSysctl)
		}
	}
	slices.Sort(r.sysctls)
	switch _, given := notes[noteStack]; {
	case !given:
		return nil, fmt.Errorf("annotation %s: missing, although the container has other annotations of %s", noteStack, prefix)
	case r.stack == "" || r.stack == "host" || strings.ContainsAny(r.stack, "/="):
		// A path would load a library of the container's author as root.
		return nil, fmt.Errorf("annotation %s=%q: expected the name of a stack, such as bbr (lklrun stack list)", noteStack, r.stack)
	}
	if r.stack == defaultStack {
		r.stack = cmp.Or(os.Getenv("LKLRUN_STACK"), config.DefaultStack)
	}
	return r, nil
}
