// SPDX-License-Identifier: Apache-2.0

package program

import (
	"path/filepath"
	"strings"
)

// ThroughEnv returns the command that env(1) executes where p, the program of
// command, is a script for it ("#!/usr/bin/env python3"), and that command's
// program. Of env's options it knows -S. Any other command, and one that env
// would refuse, is returned as it is; an *Error says that what env is to execute
// cannot be.
func ThroughEnv(command []string, p *Program) ([]string, *Program, error) {
	for range maxInterpreters {
		words := p.envWords()
		if len(words) == 0 {
			return command, p, nil
		}
		path := command[0]
		if !strings.Contains(path, "/") {
			path = p.Path // as execvp(3) has found it
		}
		command = append(append(words, path), command[1:]...)
		var err error
		if p, err = Look(command[0]); err != nil {
			return command, p, err
		}
	}
	return command, p, nil
}

// envWords are the words of a script's first line that env executes, nil where it
// is none for env, or not known what it does.
func (p *Program) envWords() []string {
	if p.Format != FormatScript || p.Interpreter == nil || filepath.Base(p.Interpreter.Path) != "env" {
		return nil
	}
	// The kernel hands over all that follows the interpreter as one word.
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
