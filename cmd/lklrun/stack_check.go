// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackbuild"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// checkLimit bounds the time that a stack takes to boot and to answer.
const checkLimit = 30 * time.Second

// stackFacts is what a stack offers, as found by running it.
type stackFacts struct {
	Path       string   `json:"path"`
	Kernel     string   `json:"kernel"`
	ABI        string   `json:"abi"`
	Boot       string   `json:"boot"` // time from the start of lklrun to the answer
	Congestion []string `json:"congestion"`
	Lacks      []string `json:"lacks"`
}

func stackCheckCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:   "check STACK|DIR",
		Short: "boot a stack and report what it offers",
		Long: `check boots a stack in another process and reports its kernel, its interface and
what it lacks. For a kernel tree, it reports whether "lklrun stack build" can
build it; this takes a second.`,
		Example:           "  lklrun stack check mine\n  lklrun stack check ~/linux",
		Args:              exactly("check", "STACK or DIR"),
		ValidArgsFunction: completeStack,
		RunE: func(cmd *cobra.Command, args []string) error {
			if st, err := os.Stat(args[0]); err == nil && st.IsDir() && !isStack(args[0]) {
				return checkTree(cmd.Context(), args[0])
			}
			s, err := findStack(args[0])
			if err != nil {
				return err
			}
			if err := s.CheckLibrary(); err != nil {
				return &cli.UsageError{Err: err}
			}
			f, err := factsOf(cmd.Context(), s)
			if err != nil {
				return err
			}
			if output == cli.OutputJSON {
				return cli.WriteJSON(os.Stdout, f)
			}
			t := cli.NewTable("PROPERTY", "VALUE").Narrow()
			t.Row("path", f.Path)
			t.Row("kernel", f.Kernel)
			t.Row("abi", f.ABI)
			t.Row("boot", f.Boot)
			t.Row("congestion", strings.Join(f.Congestion, " "))
			t.Row("lacks", strings.Join(append(f.Lacks, []string{"nothing"}[min(len(f.Lacks), 1):]...), ", "))
			return t.Write(os.Stdout)
		},
	}
	cli.OutputFlags(cmd.Flags(), &output, "print a table or JSON")
	return cmd
}

// exactly requires one argument.
func exactly(verb, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return cli.Usagef("%s: expected %s", verb, what)
		case len(args) > 1:
			return cli.Usagef("%s: unexpected argument %q", verb, args[1])
		}
		return nil
	}
}

// isStack reports whether a directory contains a stack, as opposed to a kernel tree.
func isStack(dir string) bool {
	for _, f := range []string{stack.ManifestFile, stack.LibraryFile} {
		if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
			return true
		}
	}
	return false
}

func checkTree(ctx context.Context, dir string) error {
	dir, err := stackbuild.Tree(dir)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	facts, err := stackbuild.Fit(ctx, dir)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	fmt.Println(strings.Join(facts, "\n"))
	return nil
}

// checkInterface checks that a library is a kernel.
func checkInterface(s *stack.Stack) error {
	if s.LibraryPath() == "" {
		return nil
	}
	f, err := elf.Open(s.LibraryPath())
	if err != nil {
		return err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("%s: %w", s.LibraryPath(), err)
	}
	if !slices.ContainsFunc(symbols, func(y elf.Symbol) bool { return y.Name == "lkl_start_kernel" && y.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("%s has no function lkl_start_kernel; expected a kernel library", s.LibraryPath())
	}
	return nil
}

// factsOf boots a stack and asks it.
func factsOf(ctx context.Context, s *stack.Stack) (*stackFacts, error) {
	if err := checkInterface(s); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	path := s.Dir
	if !isStack(path) {
		path = s.LibraryPath()
	}
	start := time.Now()
	name := fmt.Sprintf("stack-check-%d", os.Getpid())
	cmd := exec.CommandContext(ctx, exe, "--no-config", "--quiet", "--name", name, "--stack", path, "--", exe, "stack", "probe")
	var diagnosis bytes.Buffer
	cmd.Stderr = &diagnosis
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var f *stackFacts
	if _, err = out.Read(make([]byte, 1)); err == nil { // the probe runs
		boot := time.Since(start)
		if f, err = ask(ctx, name); err == nil {
			f.Path, f.Boot = path, boot.Round(time.Millisecond).String()
		}
	}
	in.Close() // the probe ends
	if ended := cmd.Wait(); err == nil {
		err = ended
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s did not boot within %v", path, checkLimit)
	}
	if err != nil {
		line := err.Error()
		if all := regexp.MustCompile(`(?m)^lklrun: (.*)$`).FindAllSubmatch(diagnosis.Bytes(), -1); all != nil { // notes come first
			line = string(all[len(all)-1][1])
		}
		return nil, fmt.Errorf("%s: %s", path, line)
	}
	return f, nil
}

// stackProbeCommand is the program that `lklrun stack check` runs in the stack.
func stackProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "wait until standard input ends", Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := os.Stdout.WriteString("\n"); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		},
	}
}

// offers are features that lklrun's own stacks have, with files that show them.
var offers = []struct{ name, file string }{
	{"IPv6", "/proc/sys/net/ipv6/conf/all/forwarding"},
	{"MPTCP", "/proc/sys/net/mptcp/enabled"},
	{"/proc/net/mptcp", "/proc/net/mptcp"},
	{"/proc/net/mptcp_join", "/proc/net/mptcp_join"},
	{"netfilter", "/proc/sys/net/netfilter/nf_conntrack_max"},
	{"packet sockets", "/proc/net/packet"},
}

// ask asks the stack of an instance.
func ask(ctx context.Context, name string) (*stackFacts, error) {
	info, err := instance.Place{}.Open(name)
	if err != nil {
		return nil, err
	}
	conn, err := stackconn.Dial(ctx, info.Socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f := &stackFacts{Kernel: conn.Hello().Release, ABI: abis[conn.Hello().ABI]}
	congestion, err := conn.ReadFile(ctx, "/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil, err
	}
	f.Congestion = strings.Fields(string(congestion))
	if !slices.Contains(f.Congestion, "bbr") {
		f.Lacks = append(f.Lacks, "BBR")
	}
	for _, o := range offers {
		file, err := conn.Open(ctx, o.file, unix.O_RDONLY)
		if err != nil {
			f.Lacks = append(f.Lacks, o.name)
			continue
		}
		file.Close()
	}
	return f, nil
}

// abis are the names of the interfaces, as in a manifest.
var abis = map[uint32]string{
	ctlproto.CTL_ABI_NATIVE: stack.ABINative, ctlproto.CTL_ABI_LKL_NEW: "new",
	ctlproto.CTL_ABI_LKL_OLD: "old", ctlproto.CTL_ABI_HOST: stack.ABIHost,
}
