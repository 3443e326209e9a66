// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/app"
)

// appLimit is the timeout of an operation on an app.
const appLimit = 2 * time.Minute

// appDone is the JSON output of app.
type appDone struct {
	Device  string `json:"device"`  // the device, in the syntax of --device
	Package string `json:"package"` // package name of the app
	Wrapped bool   `json:"wrapped"` // the app runs under lklrun, now and after each new start
}

// App returns the verb app.
func App(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "app run PACKAGE [FLAG]... | app unset PACKAGE",
		Short: "run an Android app under lklrun",
		Long: `app run restarts an Android app under lklrun, now and at each later start; app
unset undoes this. Today lklrun refuses every app, because the engine preload
does not support Android's C library.`,
		Example: `  lklctl --device adb app run org.example.app
  lklctl --device adb app run org.example.app --stack bbr
  lklctl --device adb app unset org.example.app`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return exit.Usagef("app %q: expected app run or app unset; see lklctl app --help", args[0])
		},
	}
	run := &cobra.Command{
		Use:     "run PACKAGE [FLAG]...",
		Short:   "start an app under lklrun, now and at each later start",
		Example: "  lklctl --device adb app run org.example.app --stack bbr",
		Args:    verb.SomeArgs("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onApp(cmd.Context(), c, args[0], true, func(ctx context.Context, a *app.App) error { return a.Run(ctx, args[1:]) })
		},
	}
	run.Flags().SetInterspersed(false) // arguments after the package are lklrun's
	unset := &cobra.Command{
		Use:     "unset PACKAGE",
		Short:   "let an app start without lklrun again",
		Example: "  lklctl --device adb app unset org.example.app",
		Args:    verb.OneArg("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onApp(cmd.Context(), c, args[0], false, func(ctx context.Context, a *app.App) error { return a.Unset(ctx) })
		},
	}
	for _, sub := range []*cobra.Command{run, unset} {
		c.Flags(sub.Flags(), true)
		verb.Must(sub.Flags().MarkHidden("name"))
		verb.Document(sub, appDone{})
		cmd.AddCommand(sub)
	}
	return cmd
}

// onApp performs an operation on an app of the device.
func onApp(ctx context.Context, c *verb.Call, name string, wrapped bool, do func(context.Context, *app.App) error) error {
	if c.Device == "" {
		return exit.Usagef("app: no device given; add --device adb")
	}
	if err := app.CheckName(name); err != nil {
		return &exit.UsageError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, appLimit)
	defer cancel()
	targets, err := c.Targets(ctx)
	if err != nil {
		return err
	}
	if len(targets) != 1 {
		return exit.Usagef("--device %s: app supports only one device at a time; name one of them", c.Device)
	}
	ready, err := verb.Prepare(ctx, targets[0], remote.Options{})
	if err != nil {
		return err
	}
	defer ready.Close()
	a, err := app.New(ready, name)
	if err == nil {
		err = do(ctx, a)
	}
	if err != nil {
		return err
	}
	if c.Output == cli.OutputJSON {
		return cli.WriteJSON(c.Stdout, appDone{ready.Name(), name, wrapped})
	}
	words := "%s: %s starts without lklrun again\n"
	if wrapped {
		words = "%s: %s was started under lklrun\n"
	}
	_, err = fmt.Fprintf(c.Stdout, words, ready.Name(), name)
	return err
}
