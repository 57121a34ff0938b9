package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// formats are what -o may be where there is nothing else to it.
var formats = []string{"table", "wide", "json", "yaml"}

// addFormats adds -o, whose default is the first format.
func addFormats(cmd *cobra.Command, output *string, formats ...string) {
	cmd.Flags().StringVarP(output, "output", "o", formats[0], strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkFormat(output string, formats ...string) error {
	if !slices.Contains(formats, output) {
		return fmt.Errorf("-o %s: want %s", output, strings.Join(formats, ", "))
	}
	return nil
}

// isObject says whether a format is one of writeObject's.
func isObject(format string) bool { return format == "json" || format == "yaml" }

// writeObject writes a value as JSON or YAML.
func writeObject(out io.Writer, format string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	if format == "json" {
		text = append(text, '\n')
	}
	_, err = out.Write(text)
	return err
}
