#!/bin/sh
# Trains a head for SmolLM2-135M-Instruct on one GPU, without network; with `torchrun` in front of the module (see the
# last lines) on several. Run it again after a kill, a full disk or the time limit (exit status 75): it continues.
#
#   [WRITTEN=RUN] samples/train_smollm2_heads.sh KIND TARGET TEXT PROMPTS OUT [further flags]
#
#   KIND     eagle, medusa or mlp
#   WRITTEN  OUT of an earlier run of any kind: its text is read, the target does not write again
#   TARGET   SmolLM2-135M-Instruct as a folder or a .gguf file
#   TEXT     folder of .txt files; a manifest.json in it may name their licences
#   PROMPTS  JSON lines with "prompt" and "category": never trained on, the card reports acceptance on them
#   OUT      folder of the head: pilotfish export TARGET --head OUT --out BUNDLE
#   flags    such as --time-limit 540, --self-text-steps 10000, --initial-head OTHER, --keep-states 0 on a small GPU, or
#            --text-steps 2500 for the first stage on ordinary text, which is left out here
#
# Several runs may share one GPU. samples/smollm2-heads.md has the numbers of heads of these shapes, and what they lack.
set -eu

if [ $# -lt 5 ]; then
    sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
kind=$1 target=$2 text=$3 prompts=$4 out=$5
shift 5
case $kind in
eagle) own="--unroll 4 --decay 0.85 --ffn 3072 --draft-vocab 16384 --self-text-steps 2800 --self-text-rate 2e-3" ;;
medusa) own="--num-heads 4 --blocks 5 --own-output yes --decay 0.9 --self-text-steps 1200 --self-text-rate 2e-3" ;;
mlp) own="--stages 3 --inner 1024 --decay 1 --self-text-steps 800 --self-text-rate 2e-3" ;;
*)
    echo "KIND is $kind; choose eagle, medusa or mlp" >&2
    exit 2
    ;;
esac

export HF_HUB_OFFLINE=1
# several GPUs: exec torchrun --standalone --nproc-per-node GPUS -m pilotfish.exporter.training "$kind" ...
# shellcheck disable=SC2086  # the recipe is several flags
exec python -m pilotfish.exporter.training "$kind" \
    --target "$target" --data "$text" --out "$out" --evaluation-prompts "$prompts" ${WRITTEN:+--written "$WRITTEN"} \
    $own --optimizer muon --text-steps 0 --self-text-length 1536 --self-text-warmup 60 --batch-tokens 49152 \
    --write-tokens 8000000 --write-batch 2560 --write-prompt 1152 --write-answer 256 \
    --write-temperatures 0 --excerpt-share 0.4 --keep-states 80 --evaluate-every 100 --checkpoint-every 300 \
    --patience 1000 --seed 0 "$@"
