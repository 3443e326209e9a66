// SPDX-License-Identifier: Apache-2.0

package program

import (
	"path/filepath"
	"strings"
)

// ThroughEnv finds the command that env(1) executes for a script. If p, the program of
// command, is a script for env ("#!/usr/bin/env python3"), ThroughEnv returns that
// command and its program. It supports only the option -S of env. It returns any other
// command unchanged, including a command that env would refuse. An *Error means that
// env's command cannot be executed.
func ThroughEnv(command []string, p *Program) ([]string, *Program, error) {
	for range maxInterpreters {
		words := p.envWords()
		if len(words) == 0 {
			return command, p, nil
		}
		path := command[0]
		if !strings.Contains(path, "/") {
			path = p.Path // the path that execvp(3) has found
		}
		command = append(append(words, path), command[1:]...)
		var err error
		if p, err = Look(command[0]); err != nil {
			return command, p, err
		}
	}
	return command, p, nil
}

// envWords returns the words after env in a script's first line. It returns nil if the
// script is not for env, or if the effect of its options is unknown.
func (p *Program) envWords() []string {
	if p.Format != FormatScript || p.Interpreter == nil || filepath.Base(p.Interpreter.Path) != "env" {
		return nil
	}
	// The kernel passes everything after the interpreter as one word.
	line, split := strings.CutPrefix(p.argument, "-S")
	if strings.HasPrefix(line, "-") || strings.ContainsAny(line, `=\'"$#`) {
		return nil
	}
	words := strings.Fields(line)
	if len(words) > 1 && !split || len(words) > 0 && strings.HasPrefix(words[0], "-") {
		return nil
	}
	return words
}

// NodeMark is the first line of the script that a node of a lab runs (pkg/lab). The words
// of its command are sh, -c, the script, sh, and then those of the node's own program.
const NodeMark = "# a node of a lab\n"

// Shown returns the command that a user recognizes: for a node of a lab, the node's own
// program, or the command of the script's last line if it has none.
func Shown(words []string) []string {
	if len(words) < 4 || !strings.HasPrefix(words[2], NodeMark) {
		return words
	}
	if len(words) > 4 {
		return words[4:]
	}
	last := words[2][strings.LastIndex(words[2], "\n")+1:]
	return strings.Fields(strings.TrimPrefix(last, "exec "))
}
