# bash completion of cedrun, printed by `cedrun completion bash`.
_cedrun() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=
	case $prev in
{{- range $name, $values := .Values}}
	--{{$name}}) words='{{$values}}' ;;
{{- end}}
	*)
		if ((COMP_CWORD == 1)); then
			words='{{range .Commands}}{{.Name}} {{end}}--help --version'
		elif [[ $cur == -* ]]; then
			case ${COMP_WORDS[1]} in
{{- range .Commands}}
			{{.Name}}) words='{{range .Flags}}{{.Name}} {{end}}' ;;
{{- end}}
			esac
		elif [[ ${COMP_WORDS[1]} == completion ]]; then
			words='bash zsh'
		fi
		;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
# Where nothing is offered, file names are.
complete -o default -F _cedrun cedrun
