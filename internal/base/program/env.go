// SPDX-License-Identifier: Apache-2.0

package program

import (
	"path/filepath"
	"strings"
)

// ThroughEnv looks through env(1). If p, the program of command, is a script for it
// ("#!/usr/bin/env python3"), ThroughEnv returns the command that env executes, and that
// command's program. Of env's options it supports -S. Any other command, and one that env
// would refuse, is returned unchanged. An *Error means that env's command cannot be
// executed.
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

// envWords are the words of a script's first line that env executes; nil if the script is
// not for env, or if its effect is unknown.
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
