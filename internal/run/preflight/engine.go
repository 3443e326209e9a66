// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// lookEngine examines the program and chooses the engine for it.
func (f *Facts) lookEngine(run config.Run, s *stack.Stack) error {
	if len(run.Command) == 0 {
		return nil
	}
	p, err := program.Look(run.Command[0])
	if err != nil {
		return err
	}
	if err := CheckSetUID(p, f.User); err != nil {
		return err
	}
	// The preload engine loads the kernel into one process, and exec
	// removes it. Many scripts start through env, which execs another
	// program. The kernel is therefore loaded into that program.
	command, p, envErr := program.ThroughEnv(run.Command, p)
	if envErr != nil {
		p = nil
	}
	f.Engine, err = ChooseEngine(run.Engine, s, p)
	if err != nil {
		return err
	}
	if f.Engine == config.EngineSupervise {
		n, err := notification()
		if err != nil {
			return err
		}
		f.MissingFeatures = n.MissingFeatures()
	}
	if f.Engine == config.EnginePreload {
		if envErr != nil {
			return envErr
		}
		f.Command = command
		f.Preload = p.PreloadLibrary()
	}
	if f.Engine == config.EnginePreload && len(run.HostNets) > 0 {
		return fmt.Errorf("--host-net %s: the engine %s has no access to the host's stack; use --engine %s", run.HostNets[0], f.Engine, config.EngineSupervise)
	}
	if f.Engine == config.EnginePreload && len(run.Dump) > 0 {
		return fmt.Errorf("dump %s: with the engine %s the kernel ends with the command; use --engine %s", run.Dump[0], f.Engine, config.EngineSupervise)
	}
	if f.Engine == config.EnginePreload && run.WaitAll {
		return fmt.Errorf("--wait-all: with the engine %s the kernel ends with the command's first process; use --engine %s", f.Engine, config.EngineSupervise)
	}
	if run.Engine == config.EngineAuto && f.Engine == config.EngineTrace {
		f.EngineNotes = append(f.EngineNotes, "the engine trace catches the command's socket calls, because this host does not support the engine supervise (see lklrun doctor); it is slower, and programs cannot use ptrace (strace, gdb)")
	}
	if run.Engine == config.EngineAuto && f.Engine == config.EnginePreload {
		f.EngineNotes = append(f.EngineNotes, "the kernel is loaded into the command, because this host does not support the engine supervise (see lklrun doctor); programs that the command starts have no network")
	}
	if f.Engine == config.EnginePreload {
		ctx, cancel := lookLimit()
		defer cancel()
		if f.MissingFeatures, err = LookConfinement(ctx, MakeNamespaces, CheckFilter); err != nil {
			return fmt.Errorf("--engine %s: %w", f.Engine, err)
		}
	}
	return checkHidden(run)
}

// checkHidden returns an error if a program that has only the gateway could ask the host's
// name services, because only namespaces of its own hide them.
func checkHidden(run config.Run) error {
	if run.Confined() == "" || !NeedsUserNamespaces() {
		return nil
	}
	ctx, cancel := lookLimit()
	defer cancel()
	if err := MakeNamespaces(ctx); err != nil {
		return fmt.Errorf("%s: this host allows no namespaces (%w), so the program could use the host's name services; run lklrun as root, allow user namespaces (sysctl user.max_user_namespaces), or remove the flag", run.Confined(), err)
	}
	return nil
}

// ChooseEngine returns the engine for a program. It returns the wanted engine
// or, for config.EngineAuto, the first engine that is available.
func ChooseEngine(want string, s *stack.Stack, p *program.Program) (string, error) {
	switch want {
	case config.EnginePreload:
		if err := CheckPreload(s, p); err != nil {
			return "", fmt.Errorf("--engine %s: %w; use --engine %s", want, err, config.EngineSupervise)
		}
		return config.EnginePreload, nil
	case config.EngineTrace:
		if err := CheckTrace(); err != nil {
			return "", fmt.Errorf("--engine %s: %w; use --engine %s", want, err, config.EngineSupervise)
		}
		return want, nil
	case config.EngineSupervise:
		return want, CheckNotification()
	}
	err := CheckNotification()
	if err == nil {
		return config.EngineSupervise, nil
	}
	noPreload := CheckPreload(s, p)
	if noPreload == nil {
		return config.EnginePreload, nil
	}
	if noTrace := CheckTrace(); noTrace != nil {
		return "", fmt.Errorf("%w; the engine %s is not available: %w; and the engine %s is not available: %w", err, config.EnginePreload, noPreload, config.EngineTrace, noTrace)
	}
	return config.EngineTrace, nil
}

// CheckPreload explains why the kernel, or this stack's kernel, cannot be
// loaded into a program. A nil p stands for any program.
func CheckPreload(s *stack.Stack, p *program.Program) error {
	if runtime.GOARCH == "arm" {
		return errors.New("not supported on arm, where system calls in the C library cannot be replaced")
	}
	switch s.ABI {
	case stack.ABIHost:
		return errors.New("the stack is the host's own kernel, which no program can load")
	case stack.ABIAuto, stack.ABINative:
	default:
		return fmt.Errorf("the stack %s has the interface %q; only lklrun's own stacks can be loaded into a program", s.Name, s.ABI)
	}
	if p == nil {
		return nil
	}
	return p.CheckPreload()
}
