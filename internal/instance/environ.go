// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// EnvName is the environment variable that tells a program on a stack the name of its
// instance.
const EnvName = "LKLRUN_NAME"

// Environ returns the environment of a program on the stack of the instance called name.
// If the command is an interactive shell at a terminal, its prompt shows the name, unless
// the user's own files set another prompt. root means that the program runs as root.
func Environ(env []string, name string, command []string, terminal, root bool) []string {
	env = set(env, EnvName, name)
	if !terminal || !interactive(command) {
		return env
	}
	mark := "lklrun:" + name
	prompt := "$ "
	if root {
		prompt = "# "
	}
	if filepath.Base(command[0]) == "bash" {
		prompt = `\u@\h:\w\$ `
		// The files of Debian and Ubuntu set a prompt with this word in parentheses.
		if get(env, "debian_chroot") == "" {
			env = set(env, "debian_chroot", mark)
		}
	}
	if own := get(env, "PS1"); own != "" {
		prompt = own
	}
	if !strings.Contains(prompt, "debian_chroot") {
		prompt = "(" + mark + ") " + prompt
	}
	return set(env, "PS1", prompt)
}

// KeysEnviron returns an environment in which programs append their TLS secrets to the file of
// the run directory dir, if there is one. Node has only a flag for this.
func KeysEnviron(env []string, dir string) []string {
	file := KeysPath(dir)
	if file == "" {
		return env
	}
	env = set(env, "SSLKEYLOGFILE", file)
	return set(env, "NODE_OPTIONS", strings.TrimSpace(get(env, "NODE_OPTIONS")+" --tls-keylog="+strconv.Quote(file)))
}

// interactive reports whether a command is one of the shells that read PS1 from the
// environment, without a script. zsh and fish have only their own files.
func interactive(command []string) bool {
	if !slices.Contains([]string{"bash", "sh", "dash", "ash"}, filepath.Base(command[0])) {
		return false
	}
	return !slices.ContainsFunc(command[1:], func(word string) bool {
		return !strings.HasPrefix(word, "-") || !strings.HasPrefix(word, "--") && strings.Contains(word, "c")
	})
}

func get(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

func set(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(env, name+"="+value)
}
