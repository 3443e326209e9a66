// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"path/filepath"
	"strings"
)

// valued are the options of crun and runc, before and after the verb, that take
// their value from the next argument.
var valued = []string{
	"--root", "--log", "--log-format", "--cgroup-manager", "--criu", "--rootless",
	"-b", "--bundle", "-f", "--config", "--console-socket", "--pid-file", "--preserve-fds",
	"-p", "--process", "-c", "--cap", "--cwd", "-e", "--env", "-u", "--user",
}

// interfacesFlag is the flag of the administrator that gives a stack other interfaces than the
// container's own: podman --runtime-flag lklrun-interfaces="INTERFACE...". The OCI runtime
// does not get it.
const interfacesFlag = "--lklrun-interfaces"

// fromCRI reports whether containerd calls for Kubernetes: the folder of its containers has
// the name of its namespace.
func (c commandLine) fromCRI() bool { return filepath.Base(c.options["--root"]) == "k8s.io" }

// A commandLine is that of an OCI runtime: [OPTION]... VERB [OPTION]... ID.
type commandLine struct {
	verb, id string
	options  map[string]string // those with a value
}

// parse parses the arguments as far as lklrun-oci must know them. The OCI
// runtime reports what it does not understand.
func parse(args []string) commandLine {
	c := commandLine{options: map[string]string{}}
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, has := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(a, "-") && has:
			c.options[name] = value
		case isValued(a):
			if i++; i < len(args) {
				c.options[a] = args[i]
			}
		case strings.HasPrefix(a, "-"):
		case c.verb == "":
			c.verb = a
		case c.id == "":
			c.id = a
		}
	}
	return c
}

func isValued(option string) bool {
	for _, v := range valued {
		if v == option {
			return true
		}
	}
	return false
}

// spec returns the path of the container's configuration.
func (c commandLine) spec() string {
	for _, name := range []string{"-f", "--config"} {
		if v := c.options[name]; v != "" {
			return v
		}
	}
	for _, name := range []string{"-b", "--bundle"} {
		if v := c.options[name]; v != "" {
			return filepath.Join(v, specFile)
		}
	}
	return specFile
}
